//! The rate card: prices with their date and source, as a TOML file. The file `rates.toml` explains its own form.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sandbox_bench_core::Digest;
use serde::Deserialize;

/// The card that is built in.
const LIST_PRICES: &str = include_str!("rates.toml");
/// The formulas of code-sandbox-bench, as a card.
const CSB_COMPAT: &str = include_str!("csb-compat.toml");

/// Prices by backend.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateCard {
    /// What to call it.
    pub name: String,
    /// Date of its newest figure.
    pub date: String,
    /// Prices by backend name.
    #[serde(default)]
    pub backend: BTreeMap<String, Rates>,
    /// Digest of the file or files that it was made from.
    #[serde(skip, default = "nothing")]
    pub digest: Digest,
}

fn nothing() -> Digest {
    Digest::of(b"")
}

/// What one backend asks, in US dollars.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// When the figures were seen.
    pub date: String,
    /// Where.
    pub source: String,
    /// Whether they were compared with the vendor's own page or price list.
    #[serde(default)]
    pub verified: bool,
    /// Why there are no prices.
    pub unpriced: Option<String>,
    /// What an account has free. Never applied.
    #[serde(default)]
    pub allowances: Vec<String>,
    /// What a reader should know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Which time is billed.
    #[serde(default)]
    pub seconds: Seconds,
    /// Price of each sandbox created.
    #[serde(default)]
    pub creation: f64,
    /// Price of each 10⁹ bytes that leave it.
    #[serde(default)]
    pub egress_gb: f64,
    /// Price of each 10⁹ bytes of the snapshot that it starts from.
    #[serde(default)]
    pub snapshot_gb: f64,
    /// Price of CPUs.
    pub cpu: Option<Meter>,
    /// Price of memory.
    pub memory: Option<Meter>,
    /// Price of disk.
    pub disk: Option<Meter>,
}

/// Which time is billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seconds {
    /// From the request for the sandbox to its end.
    #[default]
    Lifetime,
    /// The whole attempt.
    Elapsed,
}

/// The price of one resource.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Price of one unit.
    pub usd: f64,
    /// The unit.
    pub per: Unit,
    /// What is billed.
    #[serde(default)]
    pub billed: Billed,
    /// Memory follows from CPUs: GiB for each vCPU.
    pub per_vcpu: Option<f64>,
    /// CPUs follow from memory: vCPUs for each GiB.
    pub per_gib: Option<f64>,
    /// The amount where none was asked for: vCPUs or GiB.
    pub default: Option<f64>,
    /// Part of the amount that is not billed: vCPUs or GiB.
    #[serde(default)]
    pub free: f64,
    /// Billed seconds are rounded up to a multiple of this; 0 for none.
    #[serde(default)]
    pub round_s: f64,
    /// Fewest billed seconds.
    #[serde(default)]
    pub minimum_s: f64,
}

/// What a price is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// One hardware thread for a second.
    VcpuSecond,
    /// One hardware thread for an hour.
    VcpuHour,
    /// One physical core, which is two vCPUs, for a second.
    CoreSecond,
    /// One physical core for an hour.
    CoreHour,
    /// One GiB for a second. What vendors print as GB of memory is taken as GiB, as their sizes are.
    GibSecond,
    /// One GiB for an hour.
    GibHour,
}

/// What is billed of a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Billed {
    /// What the sandbox was given.
    #[default]
    Reserved,
    /// What it used.
    Used,
    /// At each moment, the greater of the two.
    Greater,
}

impl Unit {
    /// How many vCPU-seconds or GiB-seconds it has.
    #[must_use]
    pub fn amount(self) -> f64 {
        match self {
            Self::VcpuSecond | Self::GibSecond => 1.0,
            Self::CoreSecond => 2.0,
            Self::VcpuHour | Self::GibHour => 3600.0,
            Self::CoreHour => 7200.0,
        }
    }

    fn of_cpu(self) -> bool {
        !matches!(self, Self::GibSecond | Self::GibHour)
    }
}

/// Why a rate card cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    /// It cannot be read.
    #[error("rate card {path}: {source}; give a file, or csb-compat")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// It is not one.
    #[error("rate card {0}")]
    Form(String, #[source] toml::de::Error),
    /// A figure makes no sense.
    #[error("rate card {card}, backend {backend}: {why}")]
    Figure {
        /// The card.
        card: String,
        /// The backend.
        backend: String,
        /// What is wrong.
        why: String,
    },
}

impl RateCard {
    /// The card of this name: `csb-compat`, or a file whose backends replace those of the built-in card. The built-in
    /// card if there is no name.
    ///
    /// # Errors
    /// The file cannot be read or is no rate card.
    pub fn named(name: Option<&str>) -> Result<Self, RatesError> {
        match name {
            None => Self::parse("list prices", LIST_PRICES),
            Some("csb-compat") => Self::parse("csb-compat", CSB_COMPAT),
            Some(file) => {
                let path = Path::new(file);
                let text =
                    fs::read_to_string(path).map_err(|source| RatesError::Io { path: path.to_owned(), source })?;
                let mut card = Self::parse(file, &text)?;
                let base = Self::parse("list prices", LIST_PRICES)?;
                card.digest = Digest::of(format!("{}{}", base.digest, card.digest).as_bytes());
                for (backend, rates) in base.backend {
                    card.backend.entry(backend).or_insert(rates);
                }
                Ok(card)
            }
        }
    }

    /// Reads a card; `name` is for messages.
    ///
    /// # Errors
    /// It is not TOML of the right form, or a figure makes no sense.
    pub fn parse(name: &str, text: &str) -> Result<Self, RatesError> {
        let mut card: Self = toml::from_str(text).map_err(|error| RatesError::Form(name.to_owned(), error))?;
        card.digest = Digest::of(text.as_bytes());
        for (backend, rates) in &card.backend {
            rates.check().map_err(|why| RatesError::Figure { card: name.to_owned(), backend: backend.clone(), why })?;
        }
        Ok(card)
    }
}

impl Rates {
    fn check(&self) -> Result<(), String> {
        let mut figures = vec![("creation", self.creation), ("egress_gb", self.egress_gb)];
        figures.push(("snapshot_gb", self.snapshot_gb));
        let meters = [("cpu", &self.cpu), ("memory", &self.memory), ("disk", &self.disk)];
        for (name, meter) in meters.iter().filter_map(|(name, meter)| Some((*name, meter.as_ref()?))) {
            if meter.per.of_cpu() != (name == "cpu") {
                return Err(format!("{name} has the unit of another resource"));
            }
            if (meter.per_gib.is_some() && name != "cpu") || (meter.per_vcpu.is_some() && name != "memory") {
                return Err(format!("{name} does not follow from that resource: cpu has per_gib, memory has per_vcpu"));
            }
            let optional = [meter.per_vcpu, meter.per_gib, meter.default].into_iter().flatten();
            figures.extend(optional.map(|figure| (name, figure)));
            figures.extend([meter.usd, meter.free, meter.round_s, meter.minimum_s].map(|figure| (name, figure)));
        }
        match figures.iter().find(|(_, figure)| !figure.is_finite() || *figure < 0.0) {
            Some((name, figure)) => Err(format!("{name} has {figure}, which is no price or amount")),
            None => Ok(()),
        }
    }
}
