//! A backend with one fault.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace};
use sandbox_bench_core::layers::{RetryPolicy, stack};
use sandbox_bench_core::*;
use tempfile::TempDir;

use super::Fault;
use super::sandbox::MutantSandbox;
use crate::support::reference::Reference;

/// The reference backend with a fault, as an adapter of the suite.
pub struct MutantAdapter {
    state: TempDir,
    fault: Fault,
    memory: Arc<Memory>,
}

/// What a faulty backend remembers although it should not.
#[derive(Default)]
pub struct Memory {
    first: tokio::sync::Mutex<Option<Arc<dyn Sandbox>>>,
    carried: Mutex<Option<String>>,
    original: Mutex<Option<SandboxRef>>,
    env: Mutex<BTreeMap<String, String>>,
}

impl Memory {
    /// A snapshot was made of this sandbox.
    pub fn snapshot_of(&self, original: &SandboxRef) {
        *lock(&self.original) = Some(original.clone());
    }
}

impl MutantAdapter {
    pub fn new(fault: Fault) -> std::io::Result<Self> {
        Ok(Self { state: TempDir::new()?, fault, memory: Arc::default() })
    }

    /// The backend without its fault: a mutant may have forgotten what it made.
    pub fn sound(&self) -> Reference {
        Reference::new(self.state.path())
    }
}

#[async_trait]
impl Adapter for MutantAdapter {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Mutant::new(self.state.path(), self.fault, self.memory.clone())))
    }

    fn source(&self) -> Source {
        match self.fault {
            Fault::ClaimsDockerfiles => Source::Image("base".into()),
            _ => Source::Base,
        }
    }

    fn layered(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match self.fault {
            Fault::NoLayers => backend,
            _ => stack(backend, RetryPolicy::default()),
        }
    }

    fn pace(&self) -> Pace {
        Pace { call: Duration::from_secs(20), soon: Duration::from_secs(5), behaviour: Duration::from_secs(60) }
    }
}

struct Mutant {
    inner: Arc<Reference>,
    info: BackendInfo,
    fault: Fault,
    memory: Arc<Memory>,
    created: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mutant {
    fn new(state: &Path, fault: Fault, memory: Arc<Memory>) -> Self {
        let inner = Arc::new(Reference::new(state));
        let mut info = inner.info().clone();
        let can = &mut info.capabilities;
        match fault {
            Fault::NameIsMissing => info.name.clear(),
            Fault::UploadLimitIsIgnored => can.max_upload_bytes = Some(1000),
            Fault::ClaimsDockerfiles => can.dockerfile = true,
            Fault::SuspensionIsDenied => can.resume = false,
            Fault::ClaimsToBuildArtifacts => can.build_artifact = true,
            Fault::ClaimsLimits => {
                can.reports_oom = true;
                can.memory_limit = Enforcement::Enforced;
                can.pids_limit = Enforcement::Enforced;
                can.disk_limit = Enforcement::Enforced;
            }
            _ => {}
        }
        Self { inner, info, fault, memory, created: Mutex::default() }
    }

    fn handle(&self, inner: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        Arc::new(MutantSandbox::new(inner, self.inner.clone(), self.memory.clone(), self.fault))
    }

    /// The request as the fault has it.
    fn twisted(&self, spec: &SandboxSpec) -> SandboxSpec {
        let mut spec = spec.clone();
        let from_artifact = matches!(spec.source, Source::Artifact(_));
        match self.fault {
            Fault::NetworkIsAlwaysOn => spec.network = NetworkPolicy::Public,
            Fault::NetworkIsAlwaysOff => spec.network = NetworkPolicy::NoNetwork,
            Fault::SuspensionIsDenied | Fault::SuspensionNeedsNoAsking => spec.resumable = true,
            Fault::LifetimeIsEndless => spec.lifetime = Duration::from_secs(3600),
            Fault::ClaimsDockerfiles | Fault::MissingSourceIsBase => spec.source = Source::Base,
            Fault::ClonesAreEmpty if from_artifact => spec.source = Source::Base,
            Fault::ClonesInheritVariables if from_artifact => spec.env = lock(&self.memory.env).clone(),
            Fault::ClonesInheritVariables => *lock(&self.memory.env) = spec.env.clone(),
            Fault::StateIsCarriedOver => {
                if let Some(id) = lock(&self.memory.carried).clone() {
                    spec.source = Source::Artifact(id);
                }
            }
            _ => {}
        }
        spec
    }

    async fn create_twisted(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let spec = self.twisted(spec);
        if self.fault != Fault::InterruptedCreateIsForgotten {
            return self.inner.create(call, &spec, log).await;
        }
        let (inner, patient) = (self.inner.clone(), call.with_cancel(Default::default()));
        let creating = tokio::spawn(async move { inner.create(&patient, &spec, &TailSink::new(0)).await });
        tokio::select! {
            created = creating => created.map_err(|e| Error::new(ErrorKind::Failed, "panicked").because(e))?,
            () = call.cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, "create: cancelled")),
        }
    }

    async fn destroy_all(&self, call: &Call) -> Result<()> {
        for found in self.inner.find(call, &TagQuery::All).await? {
            self.inner.destroy(call, &found.reference).await?;
        }
        Ok(())
    }
}

fn is_odd(id: &str) -> bool {
    !id.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[async_trait]
impl Backend for Mutant {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        self.inner.preflight(call).await
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let original = lock(&self.memory.original).clone();
        if let (Fault::CloneIsTheOriginal, Source::Artifact(_), Some(original)) = (self.fault, &spec.source, original) {
            let sandbox = self.handle(self.inner.attach(call, &original).await?);
            return Ok(Created { sandbox, facts: CreateFacts::default() });
        }
        let mut first = self.memory.first.lock().await;
        if let (Fault::OneSandboxForAll, Some(sandbox)) = (self.fault, &*first) {
            return Ok(Created { sandbox: sandbox.clone(), facts: CreateFacts::default() });
        }
        let mut created = self.create_twisted(call, spec, log).await?;
        created.sandbox = self.handle(created.sandbox);
        lock(&self.created).push(created.sandbox.reference().id.clone());
        match self.fault {
            Fault::OneSandboxForAll => *first = Some(created.sandbox.clone()),
            Fault::SourceIsNotTold => created.facts.resolved_source.clear(),
            Fault::LoopbackIsDown => {
                created.sandbox.exec(call, &ExecSpec::sh("ip link set lo down"), &TailSink::new(0)).await?;
            }
            _ => {}
        }
        Ok(created)
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let foreign = !lock(&self.created).contains(&reference.id);
        let inner = match self.fault {
            Fault::AttachMakesNew => {
                let spec = SandboxSpec::new(reference.tag.clone(), Source::Base);
                self.inner.create(call, &spec, &TailSink::new(0)).await?.sandbox
            }
            Fault::AttachIsForTheCreator if foreign => {
                return Err(Error::new(ErrorKind::NotFound, "this connection did not create it"));
            }
            _ => self.inner.attach(call, reference).await?,
        };
        Ok(self.handle(inner))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        let query = match (self.fault, query) {
            (Fault::FindIsCareless, TagQuery::Run(_)) => &TagQuery::All,
            (_, query) => query,
        };
        let mut found = self.inner.find(call, query).await?;
        match self.fault {
            Fault::FindForgets => found.clear(),
            Fault::FindSeesOnlyTheLiving => found.retain(|f| f.state == SandboxState::Running),
            _ => {}
        }
        Ok(found)
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        match self.fault {
            Fault::DestroyDoesNothing => return Ok(Destruction::Confirmed),
            Fault::OddIdsAreOurs if is_odd(&reference.id) => {
                self.destroy_all(call).await?;
                return Ok(Destruction::Confirmed);
            }
            Fault::DestroyTakesAll => self.destroy_all(call).await?,
            Fault::DestroyIsOnce => drop(self.inner.attach(call, reference).await?),
            Fault::StateIsCarriedOver => {
                let sandbox = self.inner.attach(call, reference).await?;
                let spec = SnapshotSpec { tag: reference.tag.clone(), fingerprint: Digest::of(b""), keep_for: None };
                *lock(&self.memory.carried) = Some(sandbox.snapshot(call, &spec).await?.id);
            }
            _ => {}
        }
        self.inner.destroy(call, reference).await
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        self.inner.artifact(call, id).await
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        self.inner.artifacts(call, query).await
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        match self.fault {
            Fault::DeletionDoesNothing => return Ok(Destruction::Confirmed),
            Fault::DeletionBreaksClones => self.destroy_all(call).await?,
            _ => {}
        }
        self.inner.delete_artifact(call, id).await
    }
}
