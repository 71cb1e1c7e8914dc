//! The adapter of AWS Lambda MicroVMs: virtual machines of the vendor's service, in which a program of ours runs commands.
//!
//! [`connect`] settles region and credentials; the result fulfils [`sandbox_bench_core::Backend`]. The service starts MicroVMs
//! from images that it builds, and has no way to run a command or move a file: that is done by the runner (`runner/`), which
//! every image of ours starts, through the endpoint that each MicroVM has. How the contract maps to that, and where it
//! cannot, is in the crate's README.
//!
//! Requests follow the service's model `lambda-microvms`, API version 2025-09-09, by the vendor's crate
//! `aws-sdk-lambdamicrovms` 1.18.0; what is known of its behaviour beyond that is from the
//! [developer guide](https://docs.aws.amazon.com/lambda/latest/dg/lambda-microvms.html).

mod artifact;
mod backend;
mod cloud;
mod config;
mod context;
mod create;
mod destroy;
mod dockerfile;
mod error;
mod exec;
mod find;
mod image;
mod observe;
mod program;
mod proxy;
mod sandbox;
mod session;
mod size;
mod suspend;
mod transfer;
mod vm;

pub use backend::{connect, connect_with};
pub use config::{Architecture, AwsMicrovmConfig, Sizing};
