//! Authorization: what the grants do not list never reaches the backend.

use super::{BoxFuture, Layer, Operation};
use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};

/// Denies inputs that the manifest does not list for the call's stage, secrets that were not granted, and networks
/// other than the granted one.
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
            }
            Operation::Exec(spec) => {
                spec.secret_env.values().try_for_each(|name| call.grants.secret(name).map(drop))?;
            }
            Operation::Create(spec) if spec.network != call.grants.network => {
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
