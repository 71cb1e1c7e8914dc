//! Which gateway, which models, which limits: from options and the environment, before anything is spent.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use secrecy::SecretString;

use super::gateway::Gateway;
use super::prices::PriceTable;

/// Base URL of the Vercel AI Gateway's chat completions.
const VERCEL: &str = "https://ai-gateway.vercel.sh/v1";
/// Base URL of OpenRouter's.
const OPENROUTER: &str = "https://openrouter.ai/api/v1";

/// Gateways that are found by their variables, in this order: key, base URL, and the variable that names the model.
const KNOWN: [(&str, &str, &str); 3] = [
    ("AI_GATEWAY_API_KEY", VERCEL, "AI_GATEWAY_MODEL"),
    ("OPENROUTER_API_KEY", OPENROUTER, "OPENROUTER_MODEL"),
    // Last: it is there wherever the Vercel backend is used, too.
    ("VERCEL_OIDC_TOKEN", VERCEL, "AI_GATEWAY_MODEL"),
];

/// Limits of one attempt. The time limit is the solver's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgentLimits {
    /// Most answers of the model.
    pub turns: u32,
    /// Most tokens, of requests and answers together.
    pub tokens: u64,
    /// Most US dollars.
    pub usd: Option<f64>,
    /// True if an answer of unknown price must end the attempt: a limit of money could not be kept.
    pub price_needed: bool,
}

/// The agent of a run.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Where the models are.
    pub gateway: Gateway,
    /// Limits of one attempt.
    pub limits: AgentLimits,
    /// Prices, for gateways that do not tell.
    pub prices: Option<PriceTable>,
}

/// What the user said of the gateway.
#[derive(Debug, Clone, Default)]
pub struct GatewayChoice {
    /// Its base URL.
    pub base_url: Option<String>,
    /// Name of the variable that holds its key.
    pub key_env: Option<String>,
    /// Models.
    pub models: Vec<String>,
    /// File with prices.
    pub prices: Option<std::path::PathBuf>,
}

impl GatewayChoice {
    /// The agent, and the models that it is to use.
    ///
    /// # Errors
    /// No gateway is named or found, a variable is not set, no model is named, or the prices cannot be read.
    pub fn resolve(
        &self,
        limits: AgentLimits,
        env: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<(Agent, Vec<String>)> {
        let (base, key, model_env) = self.endpoint(&env)?;
        let gateway = Gateway::new(&base, key)?;
        let models = if self.models.is_empty() { env(model_env).into_iter().collect() } else { self.models.clone() };
        if models.is_empty() {
            bail!("the solver agent needs a model: give --model, or set {model_env}");
        }
        let prices = self.prices.as_deref().map(Path::new).map(PriceTable::read).transpose()?;
        Ok((Agent { gateway, limits, prices }, models))
    }

    fn endpoint(
        &self,
        env: &impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<(String, Option<SecretString>, &'static str)> {
        let key_of = |name: &str| {
            let key = env(name).filter(|key| !key.trim().is_empty());
            key.map(|key| SecretString::from(key.trim())).ok_or_else(|| anyhow!("{name} is not set, or is empty"))
        };
        let given = self.key_env.as_deref().map(key_of).transpose().context("--model-key-env")?;
        if let Some(base) = &self.base_url {
            return Ok((base.clone(), given, "AI_GATEWAY_MODEL"));
        }
        for (variable, base, model_env) in KNOWN {
            if let Ok(key) = key_of(variable) {
                return Ok((base.to_owned(), Some(given.unwrap_or(key)), model_env));
            }
        }
        bail!(
            "the solver agent needs a gateway: set AI_GATEWAY_API_KEY (Vercel AI Gateway) or OPENROUTER_API_KEY, \
             or give --model-base-url URL and, where it wants a key, --model-key-env NAME"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use secrecy::ExposeSecret as _;

    const LIMITS: AgentLimits = AgentLimits { turns: 1, tokens: 1, usd: None, price_needed: false };

    fn resolve(choice: &GatewayChoice, env: &[(&str, &str)]) -> Result<(String, Option<String>, Vec<String>), String> {
        let env: std::collections::BTreeMap<_, _> = env.iter().copied().collect();
        let (agent, models) =
            choice.resolve(LIMITS, |name| env.get(name).map(|v| (*v).to_owned())).map_err(|e| format!("{e:#}"))?;
        let key = agent.gateway.key().map(|key| key.expose_secret().to_owned());
        Ok((agent.gateway.shown().to_owned(), key, models))
    }

    #[test]
    fn a_gateway_is_found_by_its_variables() {
        let choice = GatewayChoice::default();
        let all = [("VERCEL_OIDC_TOKEN", "o"), ("OPENROUTER_API_KEY", "r"), ("OPENROUTER_MODEL", "m")];
        assert_eq!(resolve(&choice, &all).unwrap(), (OPENROUTER.into(), Some("r".into()), vec!["m".into()]));
        let oidc = [("VERCEL_OIDC_TOKEN", " o\n"), ("OPENROUTER_API_KEY", " "), ("AI_GATEWAY_MODEL", "g")];
        assert_eq!(resolve(&choice, &oidc).unwrap(), (VERCEL.into(), Some("o".into()), vec!["g".into()]));
        let both = [("AI_GATEWAY_API_KEY", "a"), ("OPENROUTER_API_KEY", "r"), ("AI_GATEWAY_MODEL", "g")];
        assert_eq!(resolve(&choice, &both).unwrap().1, Some("a".into()));
    }

    #[test]
    fn a_server_of_ones_own_gets_no_key_but_the_one_that_is_named() {
        let choice = GatewayChoice {
            base_url: Some("http://127.0.0.1:1/v1/".into()),
            models: vec!["m".into()],
            ..GatewayChoice::default()
        };
        let env = [("AI_GATEWAY_API_KEY", "a"), ("MINE", "k")];
        assert_eq!(resolve(&choice, &env).unwrap(), ("http://127.0.0.1:1/v1".into(), None, vec!["m".into()]));
        let named = GatewayChoice { key_env: Some("MINE".into()), ..choice.clone() };
        assert_eq!(resolve(&named, &env).unwrap().1, Some("k".into()));
        let missing = GatewayChoice { key_env: Some("OTHER".into()), ..choice };
        assert_eq!(resolve(&missing, &env).unwrap_err(), "--model-key-env: OTHER is not set, or is empty");
    }

    #[test]
    fn what_is_missing_is_said_and_credentials_in_urls_are_refused() {
        assert!(resolve(&GatewayChoice::default(), &[]).unwrap_err().contains("--model-base-url"));
        assert!(resolve(&GatewayChoice::default(), &[("OPENROUTER_API_KEY", "r")]).unwrap_err().contains("--model"));
        for bad in ["http://user:hunter22@host/v1", "ftp://host/v1", "host:80", "", "https://host/v1?key=hunter22"] {
            let choice = GatewayChoice { base_url: Some(bad.into()), ..GatewayChoice::default() };
            let error = resolve(&choice, &[("AI_GATEWAY_MODEL", "m")]).unwrap_err();
            assert!(!error.contains("hunter22"), "{error}");
        }
    }
}
