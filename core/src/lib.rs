//! The execution contract of sandbox-bench and the evidence that it leaves behind.
//!
//! This crate knows no vendor, opens no connection and starts no process. It promises three things:
//!
//! * **The contract**: [`Backend`] and [`Sandbox`], two object-safe traits that every adapter fulfils, and the
//!   types that they exchange. A caller that is correct against the traits is correct against every backend.
//! * **Policy as layers** ([`layers`]): authorization, deadlines, retries, rate limits and tracing wrap any
//!   backend, so that an adapter contains none of them.
//! * **Evidence types** ([`evidence`]): what a run writes down, versioned, with JSON Schemas.
//!
//! Beside the contract, [`tracking`] says what a service must do to which evidence is published.

pub mod agent;
pub mod artifact;
pub mod backend;
pub mod call;
pub mod capability;
pub mod completion;
pub mod condition;
pub mod digest;
pub mod error;
pub mod evidence;
pub mod input;
pub mod layers;
pub mod output;
pub mod phase;
pub mod resources;
pub mod sandbox;
pub mod tag;
pub mod tracking;
pub mod verdict;

pub use agent::{AgentEnd, AgentRecord, Divergence, ReplayRecord, Spend, TokenCounts};
pub use artifact::{Artifact, ArtifactSpec};
pub use backend::{
    Backend, BackendInfo, CacheUse, CreateFacts, Created, Destruction, Found, Preflight, SandboxSpec, SandboxState,
    Source,
};
pub use call::{Call, Meter, MeterReading};
pub use capability::{Capabilities, Enforcement, Requirement};
pub use completion::{Completion, ExecReport, StreamReport, TreeKill};
pub use condition::{Condition, ConditionProof, Freshness, ProcessIdentity};
pub use digest::Digest;
pub use error::{Error, ErrorKind, NextStep, Result};
pub use input::{Grants, Input, InputEntry, Payload, Stage};
pub use output::{HeadTail, OutputRef, OutputSink, Stream, TailSink};
pub use phase::{Phase, PhaseSpan};
pub use resources::{NetworkPolicy, Resources};
pub use sandbox::{Downloaded, ExecSpec, Observation, Sandbox, SandboxRef, SnapshotSpec, UploadProof, Uploaded};
pub use tag::{Tag, TagQuery};
pub use tracking::{Description, Evaluation, Point, Series, TrackedFile, TrackedRun, TrackedStatus, Tracker};
pub use verdict::{Decision, FailureClass, TestCounts, Verdict};
