//! Sizes of sandboxes. The service counts physical cores, in thousandths; one is two virtual CPUs (the vendor's resource
//! guide). What is requested is also the limit, so that runs compare: by default a sandbox may use far more.

use sandbox_bench_core::{Error, Resources, Result};

use crate::proto::client::Resources as Wire;

/// Thousandths of a physical core in a virtual CPU.
const MILLI_PER_CPU: f64 = 500.0;

/// The size on the wire, and what it comes to.
///
/// # Errors
/// `Unsupported` for GPUs, `InvalidRequest` for what is no number.
pub(crate) fn size(asked: &Resources) -> Result<(Wire, Resources)> {
    if asked.gpus.is_some_and(|count| count > 0) {
        return Err(Error::unsupported("the modal backend does not hand out GPUs"));
    }
    let milli_cpu = match asked.cpus {
        None => 0,
        Some(cpus) if cpus > 0.0 && cpus < 1e6 => (cpus * MILLI_PER_CPU).ceil() as u32,
        Some(cpus) => return Err(Error::invalid(format!("a limit of {cpus} CPUs is out of range"))),
    };
    let memory_mb = match asked.memory_mb {
        None => 0,
        Some(mb) => {
            let range = |_| Error::invalid(format!("a memory limit of {mb} MiB is out of range"));
            u32::try_from(mb).map_err(range)?
        }
    };
    let wire = Wire { memory_mb, milli_cpu, memory_mb_max: memory_mb, milli_cpu_max: milli_cpu };
    let granted = Resources {
        cpus: (milli_cpu > 0).then(|| f64::from(milli_cpu) / MILLI_PER_CPU),
        memory_mb: asked.memory_mb.filter(|_| memory_mb > 0),
        ..Resources::default()
    };
    Ok((wire, granted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::ErrorKind;

    use super::*;

    fn asked(cpus: Option<f64>, memory_mb: Option<u64>) -> Resources {
        Resources { cpus, memory_mb, ..Resources::default() }
    }

    #[test]
    fn two_virtual_cpus_are_a_core_and_requests_are_limits() {
        let (wire, granted) = size(&asked(Some(2.0), Some(4096))).unwrap();
        assert_eq!((wire.milli_cpu, wire.milli_cpu_max, wire.memory_mb, wire.memory_mb_max), (1000, 1000, 4096, 4096));
        assert_eq!((granted.cpus, granted.memory_mb), (Some(2.0), Some(4096)));
        let (wire, granted) = size(&asked(Some(0.001), None)).unwrap();
        assert_eq!((wire.milli_cpu, granted.cpus, granted.memory_mb), (1, Some(0.002), None));
        assert_eq!(size(&Resources::default()).unwrap(), Default::default());
    }

    #[test]
    fn what_no_sandbox_can_have_is_refused_before_anything_is_sent() {
        let kind = |asked: Resources| size(&asked).unwrap_err().kind().clone();
        for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(kind(asked(Some(cpus), None)), ErrorKind::InvalidRequest);
        }
        assert_eq!(kind(asked(None, Some(u64::MAX))), ErrorKind::InvalidRequest);
        assert_eq!(kind(Resources { gpus: Some(1), ..Resources::default() }), ErrorKind::Unsupported);
    }
}
