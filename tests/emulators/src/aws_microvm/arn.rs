//! Names of resources, and what network connectors stand for.

use super::error::{ApiError, Result};
use super::options::AwsOptions;

/// The managed base image.
pub(super) const MANAGED_IMAGE: &str = "al2023-1";
/// Managed connectors for traffic to a MicroVM.
const INGRESS: [&str; 4] = ["ALL_INGRESS", "HTTP_INGRESS", "NO_INGRESS", "SHELL_INGRESS"];
/// Managed connectors for traffic from a MicroVM.
const EGRESS: [&str; 1] = ["INTERNET_EGRESS"];
/// How managed connectors are called.
const MANAGED_CONNECTOR: &str = "aws-network-connector";

impl AwsOptions {
    /// Of an image of the account.
    pub(super) fn image_arn(&self, name: &str) -> String {
        format!("arn:aws:lambda:{}:{}:microvm-image:{name}", self.region, self.account)
    }

    /// Of an image that AWS keeps.
    pub(super) fn managed_image_arn(&self) -> String {
        format!("arn:aws:lambda:{}:aws:microvm-image:{MANAGED_IMAGE}", self.region)
    }

    fn managed_connector(&self, name: &str) -> String {
        format!("arn:aws:lambda:{}:aws:network-connector:{MANAGED_CONNECTOR}:{name}", self.region)
    }

    /// The name in an image's ARN; identifiers of images are ARNs, bare names are not taken.
    pub(super) fn image_name(&self, identifier: &str) -> Result<String> {
        let invalid = || ApiError::violation(super::error::Kind::Validation, "Invalid ARN format");
        let parts: Vec<&str> = identifier.split(':').collect();
        let ["arn", "aws", "lambda", region, account, "microvm-image", name] = parts.as_slice() else {
            return Err(invalid());
        };
        if *region != self.region || ![self.account.as_str(), "aws"].contains(account) || name.is_empty() {
            return Err(invalid());
        }
        Ok((*name).to_owned())
    }

    /// The connectors of a MicroVM for incoming traffic: those asked for, or the default.
    pub(super) fn ingress(&self, asked: Option<&[String]>) -> Result<Vec<String>> {
        let connectors = self.connectors_or(asked, "HTTP_INGRESS", &INGRESS)?;
        let has = |name: &str| connectors.contains(&self.managed_connector(name));
        if has("SHELL_INGRESS") && has("ALL_INGRESS") {
            return Err(ApiError::invalid("SHELL_INGRESS cannot be combined with ALL_INGRESS"));
        }
        Ok(connectors)
    }

    /// The connectors for outgoing traffic: those asked for, or the default.
    pub(super) fn egress(&self, asked: Option<&[String]>) -> Result<Vec<String>> {
        self.connectors_or(asked, "INTERNET_EGRESS", &EGRESS)
    }

    fn connectors_or(&self, asked: Option<&[String]>, default: &str, known: &[&str]) -> Result<Vec<String>> {
        match asked {
            None | Some([]) => Ok(vec![self.managed_connector(default)]),
            Some(asked) => asked.iter().map(|arn| self.check_connector(arn, known).map(|()| arn.clone())).collect(),
        }
    }

    fn check_connector(&self, arn: &str, known: &[&str]) -> Result<()> {
        let parts: Vec<&str> = arn.split(':').collect();
        let ["arn", "aws", "lambda", region, account, "network-connector", rest @ ..] = parts.as_slice() else {
            return Err(ApiError::invalid("Malformed network connector ARN"));
        };
        if *region != self.region {
            return Err(ApiError::invalid("Malformed network connector ARN"));
        }
        match (*account, rest) {
            ("aws", [MANAGED_CONNECTOR, name]) if known.contains(name) => Ok(()),
            ("aws", _) => Err(ApiError::invalid("Unrecognized managed network connector ARN")),
            (account, [name, ..]) if account == self.account && self.connectors.contains(*name) => Ok(()),
            _ => Err(ApiError::not_found(format!("Network connector not found: {arn}"))),
        }
    }

    /// Whether HTTP reaches a MicroVM with these connectors.
    pub(super) fn lets_http_in(&self, ingress: &[String]) -> bool {
        ["ALL_INGRESS", "HTTP_INGRESS"].iter().any(|name| ingress.contains(&self.managed_connector(name)))
    }

    /// Whether shells reach it.
    pub(super) fn lets_shells_in(&self, ingress: &[String]) -> bool {
        ["ALL_INGRESS", "SHELL_INGRESS"].iter().any(|name| ingress.contains(&self.managed_connector(name)))
    }

    /// Whether these connectors lead nowhere.
    pub(super) fn isolates(&self, egress: &[String]) -> bool {
        !egress.contains(&self.managed_connector("INTERNET_EGRESS"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn message(error: ApiError) -> String {
        error.message.unwrap_or_default()
    }

    #[test]
    fn images_are_named_by_their_whole_arn() {
        let options = AwsOptions::default();
        assert_eq!(options.image_name(&options.image_arn("a-b_1")).unwrap(), "a-b_1");
        assert_eq!(options.image_name(&options.managed_image_arn()).unwrap(), MANAGED_IMAGE);
        for bad in ["a-b_1", "arn:aws:lambda:us-east-1:123456789012:microvm-image/a", "arn:aws:lambda:eu-west-1:1:x:y"]
        {
            assert_eq!(message(options.image_name(bad).unwrap_err()), "Invalid ARN format");
        }
    }

    #[test]
    fn connectors_are_told_apart() {
        let options = AwsOptions { connectors: ["sealed".to_owned()].into(), ..AwsOptions::default() };
        let default = options.egress(None).unwrap();
        assert_eq!(options.egress(Some(&[])).unwrap(), default);
        assert!(!options.isolates(&default));
        let own = vec!["arn:aws:lambda:us-east-1:123456789012:network-connector:sealed".to_owned()];
        assert!(options.isolates(&options.egress(Some(&own)).unwrap()));
        let refused = |arn: &str| message(options.egress(Some(&[arn.to_owned()])).unwrap_err());
        assert_eq!(refused("INTERNET_EGRESS"), "Malformed network connector ARN");
        let managed = options.managed_connector("NO_EGRESS");
        assert_eq!(refused(&managed), "Unrecognized managed network connector ARN");
        assert!(refused("arn:aws:lambda:us-east-1:123456789012:network-connector:other").contains("not found"));
    }
}
