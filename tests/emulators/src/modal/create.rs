//! Creation: what is checked before a sandbox exists.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::gate::Caller;
use super::ids::{is_name, timestamp, ulid};
use super::lifetime::Start;
use super::proto::client::network_access::NetworkAccessType;
use super::proto::client::{
    CommandRouterAccess, Sandbox as Definition, SandboxCreateV2Request, SandboxCreateV2Response, SandboxTag,
};
use super::sandbox::{Made, Sandbox};
use super::status::violation;
use super::{Modal, Result};
use crate::Flags;
use crate::machine::{Limits, MachineSpec};

/// Seconds that a sandbox may live.
const LONGEST_LIFE: u32 = 86_400;
/// Bytes of the main process's arguments.
const ARGUMENTS: usize = 65_536;
/// The smallest step between the creation times of two sandboxes, in seconds: lists are paged by them.
const TICK: f64 = 1e-6;

impl Modal {
    /// Makes a sandbox, unless the same request has made one before.
    pub(super) fn create(
        self: &Arc<Self>,
        asked: SandboxCreateV2Request,
        caller: &Caller,
        flags: &Flags,
    ) -> Result<SandboxCreateV2Response> {
        let key = caller.idempotency_key.clone().filter(|_| !flags.has("idempotency-ignored"));
        if let Some(known) = key.as_ref().and_then(|key| self.world().creations.get(key).cloned()) {
            return Ok(self.created(&*self.sandbox(&known)?, caller, flags));
        }
        let SandboxCreateV2Request { app_id, definition, tags, secret_sources } = asked;
        let definition = definition.ok_or_else(|| violation("definition is missing"))?;
        check(&definition)?;
        self.check_app(&app_id)?;
        let source = self.image(&definition.image_id)?.content()?.source();
        let variables = self.variables(&definition.secret_ids, secret_sources)?;
        let tags = tag_map(tags)?;
        let spec =
            MachineSpec { limits: limits(&definition), offline: offline(&definition), ..MachineSpec::new(source) };
        let sandbox = {
            let mut world = self.world();
            let running = |sandbox: &&Arc<Sandbox>| sandbox.result().is_none();
            let rivals = world.sandboxes.iter().filter(running).filter(|sandbox| sandbox.app_id == app_id);
            let named =
                |sandbox: &Arc<Sandbox>| definition.name.is_some() && sandbox.definition.name == definition.name;
            if rivals.clone().any(named) {
                let name = definition.name.unwrap_or_default();
                return Err(Status::already_exists(format!("A running sandbox {name:?} exists in this app")));
            }
            if world.sandboxes.iter().filter(running).count() >= self.options.concurrent_sandboxes {
                return Err(Status::resource_exhausted("Sandbox limit of the workspace reached"));
            }
            let last = world.sandboxes.last().map_or(0.0, |sandbox| sandbox.created_at);
            let ulid = ulid();
            let sandbox = Arc::new(Sandbox::new(Made {
                id: format!("sb-{ulid}"),
                task_id: format!("ta-{ulid}V"),
                app_id,
                definition,
                variables,
                created_at: timestamp().max(last + TICK),
                tags,
            }));
            world.sandboxes.push(Arc::clone(&sandbox));
            world.creations.extend(key.map(|key| (key, sandbox.id.clone())));
            sandbox
        };
        self.emulation.tasks.spawn(Arc::clone(self).live(Arc::clone(&sandbox), spec, Start::of(flags)));
        Ok(self.created(&sandbox, caller, flags))
    }

    fn created(&self, sandbox: &Sandbox, caller: &Caller, flags: &Flags) -> SandboxCreateV2Response {
        let life = if flags.has("expired-token") { Duration::ZERO } else { self.options.router_token_life };
        SandboxCreateV2Response {
            sandbox_id: sandbox.id.clone(),
            task_id: sandbox.task_id.clone(),
            metadata: Some(sandbox.metadata()),
            command_router_access: (!flags.has("no-access")).then(|| self.access(sandbox, caller, life)),
            sandbox_token: String::new(),
        }
    }

    /// Where the sandbox's router is, with a token for it.
    pub(super) fn access(&self, sandbox: &Sandbox, caller: &Caller, life: Duration) -> CommandRouterAccess {
        let url = if caller.libmodal { self.address.replacen("http", "https", 1) } else { self.address.clone() };
        CommandRouterAccess { jwt: self.signer.issue(&sandbox.task_id, life), url }
    }
}

fn check(definition: &Definition) -> Result<()> {
    let invalid = |what: String| Err(Status::invalid_argument(what));
    if definition.image_id.is_empty() {
        return Err(violation("image_id is missing"));
    }
    if definition.entrypoint_args.iter().map(String::len).sum::<usize>() > ARGUMENTS {
        return invalid(format!("entrypoint_args are longer than {ARGUMENTS} bytes"));
    }
    if !(1..=LONGEST_LIFE).contains(&definition.timeout_secs) {
        return invalid(format!("timeout_secs must be between 1 and {LONGEST_LIFE}"));
    }
    if definition.idle_timeout_secs == Some(0) {
        return invalid("idle_timeout_secs must be positive".to_owned());
    }
    if definition.workdir.as_ref().is_some_and(|path| !path.starts_with('/')) {
        return Err(violation("workdir must be absolute"));
    }
    if definition.name.as_ref().is_some_and(|name| !is_name(name)) {
        return Err(violation(format!("{:?} is no name for a sandbox", definition.name)));
    }
    let resources = definition.resources.clone().unwrap_or_default();
    if resources.gpu_config.as_ref().is_some_and(|gpu| gpu.count > 0) {
        return invalid("GPUs are not supported by V2 sandboxes".to_owned());
    }
    for (what, request, limit) in [
        ("milli_cpu", resources.milli_cpu, resources.milli_cpu_max),
        ("memory_mb", resources.memory_mb, resources.memory_mb_max),
    ] {
        if limit != 0 && limit < request {
            return invalid(format!("{what}_max is less than {what}"));
        }
    }
    if !definition.mount_ids.is_empty() {
        return invalid("mounts are not emulated".to_owned());
    }
    let network = definition.network_access.clone().unwrap_or_default();
    let lists = !network.allowed_cidrs.is_empty() || !network.allowed_domains.is_empty();
    match network.network_access_type() {
        NetworkAccessType::Unspecified => Err(violation("network_access is missing")),
        NetworkAccessType::Open | NetworkAccessType::Blocked if lists => {
            invalid("only the type ALLOWLIST has allowed_cidrs or allowed_domains".to_owned())
        }
        _ => Ok(()),
    }
}

/// Tags by name.
pub(super) fn tag_map(tags: Vec<SandboxTag>) -> Result<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for SandboxTag { tag_name, tag_value } in tags {
        if tag_name.is_empty() {
            return Err(violation("a tag without a name"));
        }
        match map.entry(tag_name) {
            Entry::Vacant(entry) => drop(entry.insert(tag_value)),
            Entry::Occupied(entry) => return Err(violation(format!("tag {:?} is there twice", entry.key()))),
        }
    }
    Ok(map)
}

/// Hard limits, as far as the definition has any.
fn limits(definition: &Definition) -> Limits {
    let resources = definition.resources.clone().unwrap_or_default();
    let set = |limit: u32| (limit != 0).then_some(limit);
    Limits {
        memory: set(resources.memory_mb_max).map(|mebibytes| u64::from(mebibytes) << 20),
        // A physical core has two of what machines count.
        cpus: set(resources.milli_cpu_max).map(|milli| f64::from(milli) / 500.0),
        ..Limits::default()
    }
}

/// Machines have the network or not; an allowlist with something in it is a network.
fn offline(definition: &Definition) -> bool {
    let network = definition.network_access.clone().unwrap_or_default();
    match network.network_access_type() {
        NetworkAccessType::Blocked => true,
        NetworkAccessType::Allowlist => network.allowed_cidrs.is_empty() && network.allowed_domains.is_empty(),
        _ => false,
    }
}
