//! Authorization: what the grants do not list never reaches the backend.

use super::{BoxFuture, Layer, Operation};
use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};
use crate::input::Input;

/// Denies inputs that the manifest does not list for the call's stage, bytes that are not those listed, secrets that
/// were not granted, and networks wider than the granted one.
pub struct GuardLayer;

impl Layer for GuardLayer {
    async fn around<'a, T, F>(&'a self, operation: Operation<'a>, call: &'a Call, run: F) -> Result<T>
    where
        T: Send + 'a,
        F: Fn(Call) -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    {
        match operation {
            Operation::Upload(inputs) => {
                inputs.iter().try_for_each(|input| call.grants.authorize(&input.entry, call.stage))?;
                intact(inputs).await?;
            }
            Operation::Exec(spec) => {
                spec.secret_env.values().try_for_each(|name| call.grants.secret(name).map(drop))?;
            }
            Operation::Create(spec) if !call.grants.network.allows(&spec.network) => {
                return Err(Error::new(
                    ErrorKind::Denied,
                    format!("network {:?} denied: {:?} was granted", spec.network, call.grants.network),
                ));
            }
            _ => {}
        }
        run(call.clone()).await
    }
}

/// Compares the bytes with the manifest lines, off the async threads: trees may be large.
async fn intact(inputs: &[Input]) -> Result<()> {
    let inputs = inputs.to_vec();
    let check = move || {
        inputs.iter().try_for_each(|input| match input.is_intact() {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = format!("input {} denied: its bytes are not those of the manifest", input.entry.name);
                Err(Error::new(ErrorKind::Denied, message))
            }
            Err(e) => Err(Error::invalid(format!("input {}: cannot read its bytes", input.entry.name)).because(e)),
        })
    };
    tokio::task::spawn_blocking(check)
        .await
        .unwrap_or_else(|e| Err(Error::new(ErrorKind::Failed, "checking inputs broke off").because(e)))
}
