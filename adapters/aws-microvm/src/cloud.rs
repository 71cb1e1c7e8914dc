//! The vendor's clients: bounded, counted, and without retries of their own, which the layers do.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use aws_config::{AppName, BehaviorVersion, Region};
use aws_sdk_lambdamicrovms::config::Credentials;
use aws_sdk_lambdamicrovms::config::http::HttpResponse;
use aws_sdk_lambdamicrovms::config::retry::RetryConfig;
use aws_sdk_lambdamicrovms::config::timeout::TimeoutConfig;
use aws_sdk_lambdamicrovms::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_lambdamicrovms::operation::get_microvm::GetMicrovmOutput;
use aws_sdk_lambdamicrovms::primitives::DateTime;
use aws_sdk_lambdamicrovms::types::MicrovmState;
use jiff::Timestamp;
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::bounded;

use crate::config::Settings;
use crate::error;

const CONNECT: Duration = Duration::from_secs(5);
const ATTEMPT: Duration = Duration::from_secs(30);
/// S3 takes build contexts of any size.
const TRANSFER: Duration = Duration::from_secs(600);

/// The account, as this process may use it.
#[derive(Debug)]
pub(crate) struct Cloud {
    /// MicroVMs and their images.
    pub(crate) lambda: aws_sdk_lambdamicrovms::Client,
    /// Build contexts.
    pub(crate) s3: aws_sdk_s3::Client,
    /// Settings.
    pub(crate) settings: Settings,
    /// Whom the service takes us for, as far as that is no secret.
    pub(crate) identity: Option<String>,
}

impl Cloud {
    /// Clients with these settings. Keys come from `variable`, else from where the vendor's tools look for them. Nothing is
    /// asked of the service.
    ///
    /// # Errors
    /// `Credentials` for half a key.
    pub(crate) async fn new(settings: Settings, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(settings.region.clone()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build(),
            );
        if let Ok(name) = AppName::new("sandbox-bench") {
            loader = loader.app_name(name);
        }
        let keys = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        let mut identity = None;
        match keys {
            (Some(id), Some(secret)) => {
                identity = Some(format!("access key {id}"));
                let token = variable("AWS_SESSION_TOKEN");
                loader = loader.credentials_provider(Credentials::new(id, secret, token, None, "environment"));
            }
            (None, None) => {}
            _ => {
                return Err(Error::new(ErrorKind::Credentials, "half of an AWS access key is set")
                    .hint("set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
            }
        }
        let shared = loader.load().await;
        let mut lambda = aws_sdk_lambdamicrovms::config::Builder::from(&shared);
        lambda.set_endpoint_url(settings.endpoint_url.clone());
        let mut s3 = aws_sdk_s3::config::Builder::from(&shared);
        s3.set_endpoint_url(settings.s3_endpoint_url.clone());
        // Names of buckets are no names of hosts at an address of one's own.
        s3.set_force_path_style(settings.s3_endpoint_url.is_some().then_some(true));
        let patient = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(TRANSFER).build();
        Ok(Self {
            lambda: aws_sdk_lambdamicrovms::Client::from_conf(lambda.build()),
            s3: aws_sdk_s3::Client::from_conf(s3.timeout_config(patient).build()),
            settings,
            identity,
        })
    }

    /// Where requests go.
    pub(crate) fn endpoint(&self) -> String {
        let own = || format!("https://lambda.{}.amazonaws.com", self.settings.region);
        self.settings.endpoint_url.clone().unwrap_or_else(own)
    }

    /// The MicroVM of this id.
    ///
    /// # Errors
    /// `NotFound`, and those of [`ask`].
    pub(crate) async fn microvm(&self, call: &Call, id: &str) -> Result<GetMicrovmOutput> {
        let request = self.lambda.get_microvm().microvm_identifier(id).send();
        ask(call, &format!("MicroVM {id}"), Effect::Idempotent, request).await
    }
}

/// Waits for an answer of one of the clients.
///
/// # Errors
/// `Cancelled`, `DeadlineExceeded`, and what the service said ([`error::of`]).
pub(crate) async fn ask<T, E>(
    call: &Call,
    what: &str,
    effect: Effect,
    request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T>
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    call.meter.api_call();
    bounded(call, what, request).await?.map_err(|e| error::of(what, effect, e))
}

/// True if a MicroVM in this state will run nothing any more.
pub(crate) fn over(state: &MicrovmState) -> bool {
    matches!(state, MicrovmState::Terminating | MicrovmState::Terminated)
}

/// A time on the wire.
pub(crate) fn timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}
