//! The ways to a task's environment on one backend, and which of them turned out not to be there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox_bench_core::evidence::Failure;
use sandbox_bench_core::{Digest, FailureClass, Phase, Source};

use crate::environment::Setup;

/// Images that a backend could not get, as far as a run knows by now. Passing over them spares every further trial the
/// vain attempt.
#[derive(Debug, Default)]
pub struct Missing(Mutex<HashSet<(String, Digest)>>);

impl Missing {
    /// Takes note of what a failed start from `setup` says; true if it says that the image cannot be had.
    pub fn note(&self, backend: &str, setup: &Setup, failure: &Failure) -> bool {
        let missing = matches!(setup.source, Source::Image(_))
            && failure.phase == Phase::Environment
            && failure.class == FailureClass::Environment;
        if missing {
            self.set().insert((backend.to_owned(), setup.fingerprint.clone()));
        }
        missing
    }

    /// The first of `ways` that is not known to be missing, else the last.
    #[must_use]
    pub fn best<'a>(&self, backend: &str, ways: &'a [Arc<Setup>]) -> Option<&'a Arc<Setup>> {
        let set = self.set();
        ways.iter().find(|way| !set.contains(&(backend.to_owned(), way.fingerprint.clone()))).or(ways.last())
    }

    fn set(&self) -> MutexGuard<'_, HashSet<(String, Digest)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use sandbox_bench_core::evidence::EnvironmentWay;
    use sandbox_bench_core::{BackendInfo, Capabilities};
    use sandbox_bench_datasets::{Dataset, OpenOptions};

    use super::*;
    use crate::bases::Bases;
    use crate::environment;

    /// The ways of a task that names an image and has a Dockerfile too.
    fn ways(capabilities: Capabilities) -> Vec<Arc<Setup>> {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("task");
        fs::create_dir_all(task.join("environment")).unwrap();
        fs::create_dir_all(task.join("tests")).unwrap();
        fs::write(task.join("task.toml"), "[environment]\ndocker_image = \"example.org/team/task:1\"\n").unwrap();
        fs::write(task.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(task.join("environment/Dockerfile"), "FROM debian:bookworm-slim\n").unwrap();
        fs::write(task.join("tests/test.sh"), "true\n").unwrap();
        let dataset = Dataset::open(task.to_str().unwrap(), OpenOptions::new(dir.path().join("cache"))).unwrap();
        let task = dataset.load(&dataset.entries().next().unwrap().unwrap()).unwrap();
        let backend = BackendInfo {
            name: "b".into(),
            adapter_version: "1".into(),
            backend_version: None,
            api_version: None,
            endpoint: "here".into(),
            region: None,
            architecture: "x86_64".into(),
            capabilities: Capabilities { network_public: true, ..capabilities },
        };
        environment::choose(&task, &backend, &Bases::default()).unwrap().into_iter().map(Arc::new).collect()
    }

    fn failure(class: FailureClass, phase: Phase) -> Failure {
        Failure { class, phase, message: String::new(), error_kind: None, retryable: false }
    }

    #[test]
    fn the_dockerfile_takes_the_place_of_an_image_that_cannot_be_had() {
        let ways = ways(Capabilities { images: true, dockerfile: true, ..Capabilities::default() });
        let missing = Missing::default();
        let best = || missing.best("b", &ways).unwrap();
        assert_eq!(best().way, EnvironmentWay::Image);
        for (class, phase) in [(FailureClass::Startup, Phase::Environment), (FailureClass::Environment, Phase::Prepare)]
        {
            assert!(!missing.note("b", best(), &failure(class, phase)), "{class} in {phase} says nothing of the image");
        }
        let cannot_pull = failure(FailureClass::Environment, Phase::Environment);
        assert!(missing.note("b", &ways[0], &cannot_pull));
        assert_eq!(best().way, EnvironmentWay::Dockerfile);
        assert!(!missing.note("b", best(), &cannot_pull), "a Dockerfile that does not build is not a missing image");
        assert_eq!(missing.best("other", &ways).unwrap().way, EnvironmentWay::Image);
    }

    #[test]
    fn a_backend_without_images_takes_the_dockerfile_at_once() {
        let base = Capabilities { base: true, base_name: "host".into(), ..Capabilities::default() };
        let taken: Vec<EnvironmentWay> = ways(base).iter().map(|way| way.way).collect();
        assert_eq!(taken, [EnvironmentWay::Recipe]);
    }
}
