//! Options about models.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;

use super::options::distinct;
use crate::agent::settings::{AgentLimits, GatewayChoice};
use crate::exit::Fault;
use crate::solver::Solver;

/// Which models, behind which gateway, within which limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models")]
pub struct ModelOptions {
    /// Models, separated by commas: a dimension of the plan. A command solver finds its model in BENCH_MODEL [default for
    /// agent: AI_GATEWAY_MODEL or OPENROUTER_MODEL].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    model: Vec<String>,
    /// Base URL of an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1 [default: the Vercel AI Gateway, if
    /// AI_GATEWAY_API_KEY is set, OpenRouter, if OPENROUTER_API_KEY is, or the former with VERCEL_OIDC_TOKEN].
    #[arg(long, value_name = "URL")]
    model_base_url: Option<String>,
    /// Name of the host variable that holds the endpoint's key. The key stays on the host [default: none for a base URL of
    /// your own].
    #[arg(long, value_name = "NAME")]
    model_key_env: Option<String>,
    /// TOML file with dated prices, for endpoints that do not say what an answer cost.
    #[arg(long, value_name = "FILE")]
    model_prices: Option<PathBuf>,
    /// Most answers of the model in a trial.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: u32,
    /// Most tokens of a trial, requests and answers together.
    #[arg(long, default_value_t = 2_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: u64,
    /// Most US dollars that the model may cost in a trial. The answer that reaches it is the last one.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost: Option<f64>,
    /// Start no more trials once the models have cost so many US dollars.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    model_budget: Option<f64>,
}

fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd > 0.0 => Ok(usd),
        _ => Err("expected an amount of US dollars above 0".into()),
    }
}

/// The solver of a run, and the models of its plan.
#[derive(Debug)]
pub struct Chosen {
    /// The solver.
    pub solver: Solver,
    /// The models; empty where the solver is none.
    pub models: Vec<String>,
    /// Budget of the whole run in US dollars.
    pub budget_usd: Option<f64>,
}

impl ModelOptions {
    /// The solver that `text` names, with the models it uses. `planned` models and budget hold where the options name none.
    ///
    /// # Errors
    /// There is no such solver, no gateway, or the options do not go together.
    pub fn choose(&self, text: &str, planned: &[String], planned_budget: Option<f64>) -> Result<Chosen, Fault> {
        let mut models = distinct(if self.model.is_empty() { planned } else { &self.model });
        let budget_usd = self.model_budget.or(planned_budget);
        let solver = Solver::parse(text, || {
            let choice = GatewayChoice {
                base_url: self.model_base_url.clone(),
                key_env: self.model_key_env.clone(),
                models: models.clone(),
                prices: self.model_prices.clone(),
            };
            let limits = AgentLimits {
                turns: self.max_turns,
                tokens: self.max_tokens,
                usd: self.max_cost,
                price_needed: self.max_cost.is_some() || budget_usd.is_some(),
            };
            let (agent, found) = choice.resolve(limits, |name| std::env::var(name).ok())?;
            models = found;
            Ok(agent)
        })
        .map_err(Fault::usage)?;
        self.fits(&solver, &models, budget_usd).map_err(Fault::usage)?;
        Ok(Chosen { solver, models, budget_usd })
    }

    fn fits(&self, solver: &Solver, models: &[String], budget_usd: Option<f64>) -> anyhow::Result<()> {
        let given = [
            ("--model-base-url", self.model_base_url.is_some()),
            ("--model-key-env", self.model_key_env.is_some()),
            ("--model-prices", self.model_prices.is_some()),
            ("--max-cost", self.max_cost.is_some()),
            ("--model-budget", budget_usd.is_some()),
        ];
        match solver {
            Solver::Agent(_) => Ok(()),
            Solver::Command { .. } | Solver::None | Solver::Gold | Solver::Replay(_) => {
                if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
                    bail!("{option} is for the solver agent, and the solver is {solver}");
                }
                if !models.is_empty() && !matches!(solver, Solver::Command { .. }) {
                    return Err(anyhow!("the solver {solver} uses no model: leave --model out"));
                }
                Ok(())
            }
        }
    }
}
