//! Operations on MicroVMs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Aws;
use super::error::{ApiError, Kind, Result};
use super::image::{BuildState, ImageState, version_name};
use super::life::{Fate, Origin};
use super::microvm::{Microvm, Order, Plan, State};
use super::page::page;
use super::request::{AuthToken, Run, typed};
use super::routes::Ask;
use super::size::Size;
use super::tokens::Grant;
use super::world::World;

/// Seconds that a MicroVM may live, unless it asks for fewer.
const MAXIMUM: u64 = 28_800;
/// Minutes of a token at most.
const TOKEN_MINUTES: u64 = 60;
/// The header that a token is sent in; the only part that live tokens have.
pub(super) const TOKEN_HEADER: &str = "X-aws-proxy-auth";

impl Aws {
    pub(super) fn run(self: &Arc<Self>, ask: &Ask) -> Result<Value> {
        let run: Run = typed(&ask.body)?;
        let name = self.options.image_name(&run.image_identifier)?;
        let mut world = self.world();
        if let Some(made) = world.replays.find(ask.operation.name, &ask.body)? {
            return Ok(world.microvm(&made)?.view(Duration::ZERO));
        }
        let (plan, origin) = self.microvm_plan(&world, &name, run)?;
        self.check_memory(&world, plan.size)?;
        let (microvm, orders) = Microvm::new(world.next_number(), &self.options.region, plan);
        world.add_microvm(Arc::clone(&microvm));
        world.replays.note(ask.operation.name, &ask.body, &microvm.id);
        drop(world);
        let view = microvm.view(Duration::ZERO);
        self.emulation.tasks.spawn(Arc::clone(self).live(microvm, origin, orders, Fate::of(&ask.flags)));
        Ok(view)
    }

    fn microvm_plan(&self, world: &World, name: &str, run: Run) -> Result<(Plan, Origin)> {
        let image = world.image(name, &run.image_identifier)?;
        let none = || ApiError::not_found(format!("No active version found for MicroVM image {}", image.arn));
        if !matches!(image.state, ImageState::Created | ImageState::Updated) {
            return Err(none());
        }
        let wanted = run.image_version.or_else(|| image.latest_active()).ok_or_else(none)?;
        let version = image.version(&wanted)?;
        let launchable = version.state == BuildState::Successful && version.active;
        let saved = version.saved.clone().filter(|_| launchable).ok_or_else(none)?;
        if run.run_hook_payload.is_some() && version.plan.hooks.run.is_none() {
            return Err(ApiError::invalid("runHookPayload requires the run hook to be enabled on the MicroVM image"));
        }
        let plan = Plan {
            image_arn: image.arn.clone(),
            image_version: version_name(version.number),
            size: version.plan.size,
            hooks: version.plan.hooks.clone(),
            execution_role: run.execution_role_arn,
            key: run.kms_key_identifier,
            idle: run.idle_policy,
            maximum: run.maximum_duration_in_seconds.unwrap_or(MAXIMUM),
            ingress: self.options.ingress(run.ingress_network_connectors.as_deref())?,
            egress: self.options.egress(run.egress_network_connectors.as_deref())?,
            payload: run.run_hook_payload,
        };
        let mut env = version.plan.env.clone();
        let own = [
            ("AWS_REGION", self.options.region.clone()),
            ("AWS_LAMBDA_MICROVM_IMAGE_NAME", image.name.clone()),
            ("AWS_LAMBDA_MICROVM_IMAGE_ARN", image.arn.clone()),
            ("AWS_LAMBDA_MICROVM_IMAGE_VERSION", plan.image_version.clone()),
        ];
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Ok((plan, Origin { saved, env }))
    }

    /// # Errors
    /// The account has no memory left for one more of this size.
    pub(super) fn check_memory(&self, world: &World, size: Size) -> Result<()> {
        if world.memory() + size.mib > self.options.quotas.memory_mib {
            let message = "The base maximum allocated memory limit has been reached for this account.";
            return Err(ApiError::new(Kind::Quota, message));
        }
        Ok(())
    }

    pub(super) fn get_microvm(&self, ask: &Ask) -> Result<Value> {
        Ok(self.world().microvm(ask.label(0))?.view(self.lag(ask)))
    }

    pub(super) fn list_microvms(&self, ask: &Ask) -> Result<Value> {
        let filter = |name: &str| ask.query.get(name).cloned();
        let (image, version) = (filter("imageIdentifier"), filter("imageVersion"));
        if let Some(image) = image.as_ref().and_then(Value::as_str) {
            self.options.image_name(image)?;
        }
        let (world, lag) = (self.world(), self.lag(ask));
        let entries = world.microvms().map(|microvm| (microvm.number, microvm.summary(lag)));
        page("microvms", &ask.query, entries, |item| {
            image.as_ref().is_none_or(|image| item["imageArn"] == *image)
                && version.as_ref().is_none_or(|version| item["imageVersion"] == *version)
        })
    }

    /// By how much reads of MicroVMs are behind.
    fn lag(&self, ask: &Ask) -> Duration {
        let stale = ask.flags.value("stale").map(Duration::from_millis);
        stale.unwrap_or(self.emulation.timing.list_lag)
    }

    pub(super) fn suspend_microvm(&self, ask: &Ask) -> Result<Value> {
        self.change(ask, Order::Suspend)
    }

    pub(super) fn resume_microvm(&self, ask: &Ask) -> Result<Value> {
        self.change(ask, Order::Resume)
    }

    fn change(&self, ask: &Ask, order: Order) -> Result<Value> {
        let microvm = self.changeable(ask.label(0))?;
        if microvm.state() == State::Pending {
            return Err(ApiError::conflict(format!("The MicroVM {} is in state: PENDING", microvm.id)));
        }
        microvm.order(order);
        Ok(json!({}))
    }

    pub(super) fn terminate_microvm(&self, ask: &Ask) -> Result<Value> {
        let microvm = self.world().microvm(ask.label(0))?;
        if ask.flags.has("terminate-stuck") {
            microvm.order(Order::Linger);
        } else if !ask.flags.has("terminate-ignored") {
            microvm.order(Order::Terminate);
        }
        Ok(json!({}))
    }

    pub(super) fn create_token(&self, ask: &Ask) -> Result<Value> {
        let asked: AuthToken = typed(&ask.body)?;
        let microvm = self.changeable(ask.label(0))?;
        if !self.options.lets_http_in(&microvm.plan.ingress) {
            return Err(ApiError::invalid("The MicroVM does not allow HTTP ingress."));
        }
        self.mint(&microvm, asked, ask)
    }

    pub(super) fn create_shell_token(&self, ask: &Ask) -> Result<Value> {
        let asked: AuthToken = typed(&ask.body)?;
        let microvm = self.changeable(ask.label(0))?;
        if !self.options.lets_shells_in(&microvm.plan.ingress) {
            return Err(ApiError::invalid(
                "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM.",
            ));
        }
        // It opens no port; shells are not emulated.
        self.mint(&microvm, asked, ask)
    }

    fn mint(&self, microvm: &Microvm, asked: AuthToken, ask: &Ask) -> Result<Value> {
        let minutes = asked.expiration_in_minutes;
        if minutes > TOKEN_MINUTES {
            let message = format!("ExpirationMinutes {minutes} exceeded max allowed of {TOKEN_MINUTES}.");
            return Err(ApiError::invalid(message));
        }
        let early = ask.flags.value("token-expires").map(Duration::from_millis);
        let life = early.unwrap_or_else(|| self.seconds(minutes * 60));
        let grant = Grant { microvm: microvm.id.clone(), ports: asked.allowed_ports, expires: Instant::now() + life };
        Ok(json!({ "authToken": { TOKEN_HEADER: self.world().grants.mint(grant) } }))
    }

    /// One that has not ended.
    fn changeable(&self, id: &str) -> Result<Arc<Microvm>> {
        let microvm = self.world().microvm(id)?;
        if microvm.state().over() {
            let message = format!("The MicroVM {id} has been terminated and its state cannot be changed.");
            return Err(ApiError::invalid(message));
        }
        Ok(microvm)
    }
}
