//! The operations of the service: where each is, and what it takes.
//!
//! Paths, members and constraints are those of the service model `lambda-microvms`, API version 2025-09-09, in botocore
//! 1.44.8. `tests/sdk/aws-boto3` holds this table against that package's model.

use serde_json::{Value, json};

use super::shape::{Member, Pattern, Shape, Text, names, optional, required};

/// An operation on the wire.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    /// Labels in braces stand for one segment.
    pub(super) path: &'static str,
    /// Of success.
    pub(super) status: u16,
    pub(super) query: &'static [Member],
    /// `None`: there is no body.
    pub(super) body: Option<&'static [Member]>,
}

impl Operation {
    /// The operation of a request and the values of its labels, in their order.
    pub(super) fn find(method: &str, path: &[String]) -> Option<(&'static Operation, Vec<String>)> {
        OPERATIONS.iter().filter(|operation| operation.method == method).find_map(|operation| {
            let template: Vec<&str> = operation.path.split('/').collect();
            let same = |(part, segment): (&&str, &String)| {
                if part.starts_with('{') { !segment.is_empty() } else { *part == segment.as_str() }
            };
            let matches = template.len() == path.len() && template.iter().zip(path).all(same);
            let labels = template.iter().zip(path).filter(|(part, _)| part.starts_with('{'));
            matches.then(|| (operation, labels.map(|(_, segment)| segment.clone()).collect()))
        })
    }
}

/// Every operation with its path and the names of its members, for who compares them with the service model.
pub(super) fn table() -> Value {
    let entry = |operation: &Operation| {
        let query = names(operation.query, "");
        let body = operation.body.map(|members| names(members, "")).unwrap_or_default();
        let facts = json!({
            "method": operation.method, "path": format!("/{}", operation.path), "status": operation.status,
            "query": query, "body": body,
        });
        (operation.name.to_owned(), facts)
    };
    Value::Object(OPERATIONS.iter().map(entry).collect())
}

const fn text(min: usize, max: usize) -> Text {
    Text { min, max, pattern: None }
}

const fn plain(min: usize, max: usize) -> Shape {
    Shape::Text(text(min, max))
}

const fn patterned(min: usize, max: usize, pattern: &'static str, fits: fn(&str) -> bool) -> Shape {
    Shape::Text(Text { min, max, pattern: Some((pattern, fits)) })
}

const fn whole(min: i64, max: i64) -> Shape {
    Shape::Whole { min, max }
}

fn no_space(text: &str) -> bool {
    !text.contains(char::is_whitespace)
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn is_log_group(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-/.#".contains(&byte))
}

fn is_log_stream(text: &str) -> bool {
    !text.contains([':', '*'])
}

fn is_tag(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == ' ' || "_.:/=+-@".contains(c))
}

fn is_role(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let [arn, partition, service, region, account, resource] = parts.as_slice() else { return false };
    let name = resource.strip_prefix("role").map(|rest| rest.trim_start_matches('/')).unwrap_or_default();
    *arn == "arn"
        && partition.starts_with("aws")
        && (*service, *region) == ("iam", "")
        && account.len() == 12
        && account.bytes().all(|byte| byte.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+=,.@-/".contains(&byte))
}

fn is_key_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":/_-".contains(&byte))
}

const NON_BLANK: Shape = patterned(1, 2048, "[^\\s]+", no_space);
const ROLE: Shape = patterned(20, 2048, "arn:aws[a-z\\-]*:iam::[0-9]{12}:role/?[a-zA-Z_0-9+=,.@\\-_/]+", is_role);
const KEY_ID: Shape = patterned(1, 2048, "[a-zA-Z0-9:/_-]+", is_key_id);
const NAME: Shape = patterned(1, 64, "[a-zA-Z0-9-_]+", is_name);
const TOKEN: Shape = plain(1, 128);
const CONNECTOR: Shape = plain(1, 2048);
const CONNECTORS: Shape = Shape::List { of: &CONNECTOR, min: 0, max: 10 };
const STATE: Shape = Shape::Word(&["DISABLED", "ENABLED"]);
const TAG: Option<Pattern> = Some(("([\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]*)", is_tag));
const TAGS: Shape = Shape::Map {
    key: Text { min: 1, max: 128, pattern: TAG },
    value: Text { min: 0, max: 256, pattern: TAG },
    max: usize::MAX,
};
const LOGGING: Shape = Shape::Union(&[
    optional("disabled", Shape::Structure(&[])),
    optional(
        "cloudWatch",
        Shape::Structure(&[
            optional("logGroup", patterned(1, 512, "[a-zA-Z0-9_\\-/.#]+", is_log_group)),
            optional("logStream", patterned(1, 512, "[^:*]*", is_log_stream)),
        ]),
    ),
]);
const HOOKS: Shape = Shape::Structure(&[
    optional("port", whole(1, 65_535)),
    optional(
        "microvmHooks",
        Shape::Structure(&[
            optional("run", STATE),
            optional("runTimeoutInSeconds", whole(1, 60)),
            optional("resume", STATE),
            optional("resumeTimeoutInSeconds", whole(1, 60)),
            optional("suspend", STATE),
            optional("suspendTimeoutInSeconds", whole(1, 60)),
            optional("terminate", STATE),
            optional("terminateTimeoutInSeconds", whole(1, 60)),
        ]),
    ),
    optional(
        "microvmImageHooks",
        Shape::Structure(&[
            optional("ready", STATE),
            optional("readyTimeoutInSeconds", whole(1, 3600)),
            optional("validate", STATE),
            optional("validateTimeoutInSeconds", whole(1, 3600)),
        ]),
    ),
]);
pub(super) const ARCHITECTURES: &[&str] = &["ARM_64", "X86_64"];
const ARCHITECTURE: Shape = Shape::Word(ARCHITECTURES);
const IDLE_POLICY: Shape = Shape::Structure(&[
    required("maxIdleDurationSeconds", whole(60, i32::MAX as i64)),
    required("suspendedDurationSeconds", whole(0, i32::MAX as i64)),
    required("autoResumeEnabled", Shape::Flag),
]);
const PORT: Shape = whole(1, 65_535);
const PORTS: Shape = Shape::List {
    of: &Shape::Union(&[
        optional("port", PORT),
        optional("range", Shape::Structure(&[required("startPort", PORT), required("endPort", PORT)])),
        optional("allPorts", Shape::Structure(&[])),
    ]),
    min: 1,
    max: usize::MAX,
};

/// What creating and updating an image have in common.
macro_rules! image_settings {
    ($($own:expr),*) => {
        &[
            required("baseImageArn", NON_BLANK),
            optional("baseImageVersion", NON_BLANK),
            required("buildRoleArn", ROLE),
            optional("description", plain(0, usize::MAX)),
            required("codeArtifact", Shape::Union(&[optional("uri", NON_BLANK)])),
            optional("logging", LOGGING),
            optional("egressNetworkConnectors", Shape::List { of: &CONNECTOR, min: 0, max: 1 }),
            optional(
                "cpuConfigurations",
                Shape::List {
                    of: &Shape::Structure(&[required("architecture", ARCHITECTURE)]),
                    min: 0,
                    max: usize::MAX,
                },
            ),
            optional(
                "resources",
                Shape::List {
                    of: &Shape::Structure(&[required("minimumMemoryInMiB", whole(0, i32::MAX as i64))]),
                    min: 0,
                    max: 1,
                },
            ),
            optional("additionalOsCapabilities", Shape::List { of: &Shape::Word(&["ALL"]), min: 0, max: usize::MAX }),
            optional("hooks", HOOKS),
            optional(
                "environmentVariables",
                Shape::Map {
                    key: Text { min: 1, max: 256, pattern: Some(("[^\\s]+", no_space)) },
                    value: text(0, 4096),
                    max: 100,
                },
            ),
            optional("kmsKeyIdentifier", KEY_ID),
            optional("clientToken", TOKEN),
            $($own),*
        ]
    };
}

const MAX_RESULTS: Member = optional("maxResults", whole(1, 50));
const NEXT_TOKEN: Member = optional("nextToken", plain(0, usize::MAX));
const PAGE: [Member; 2] = [MAX_RESULTS, NEXT_TOKEN];

const fn operation(name: &'static str, method: &'static str, path: &'static str) -> Operation {
    Operation { name, method, path, status: 200, query: &[], body: None }
}

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        status: 201,
        body: Some(image_settings!(required("name", NAME), optional("tags", TAGS))),
        ..operation("CreateMicrovmImage", "POST", "2025-09-09/microvm-images")
    },
    Operation {
        body: Some(image_settings!()),
        ..operation("UpdateMicrovmImage", "PUT", "2025-09-09/microvm-images/{imageIdentifier}")
    },
    operation("GetMicrovmImage", "GET", "2025-09-09/microvm-images/{imageIdentifier}"),
    Operation {
        query: &[MAX_RESULTS, NEXT_TOKEN, optional("nameFilter", NON_BLANK)],
        ..operation("ListMicrovmImages", "GET", "2025-09-09/microvm-images")
    },
    operation("DeleteMicrovmImage", "DELETE", "2025-09-09/microvm-images/{imageIdentifier}"),
    operation("GetMicrovmImageVersion", "GET", "2025-09-09/microvm-images/{imageIdentifier}/versions/{imageVersion}"),
    Operation {
        query: &PAGE,
        ..operation("ListMicrovmImageVersions", "GET", "2025-09-09/microvm-images/{imageIdentifier}/versions")
    },
    Operation {
        body: Some(&[required("status", Shape::Word(&["ACTIVE", "INACTIVE"]))]),
        ..operation(
            "UpdateMicrovmImageVersion",
            "PATCH",
            "2025-09-09/microvm-images/{imageIdentifier}/versions/{imageVersion}",
        )
    },
    operation(
        "DeleteMicrovmImageVersion",
        "DELETE",
        "2025-09-09/microvm-images/{imageIdentifier}/versions/{imageVersion}",
    ),
    Operation {
        query: &[
            MAX_RESULTS,
            NEXT_TOKEN,
            optional("architecture", ARCHITECTURE),
            optional("chipset", Shape::Word(&["GRAVITON", "INTEL"])),
            optional("chipsetGeneration", NON_BLANK),
        ],
        ..operation(
            "ListMicrovmImageBuilds",
            "GET",
            "2025-09-09/microvm-images/{imageIdentifier}/versions/{imageVersion}/builds",
        )
    },
    operation(
        "GetMicrovmImageBuild",
        "GET",
        "2025-09-09/microvm-images/{imageIdentifier}/versions/{imageVersion}/builds/{buildId}",
    ),
    Operation { query: &PAGE, ..operation("ListManagedMicrovmImages", "GET", "2025-09-09/managed-microvm-images") },
    Operation {
        query: &PAGE,
        ..operation(
            "ListManagedMicrovmImageVersions",
            "GET",
            "2025-09-09/managed-microvm-images/{imageIdentifier}/versions",
        )
    },
    Operation {
        body: Some(&[
            required("imageIdentifier", plain(1, 256)),
            optional("imageVersion", NON_BLANK),
            optional("executionRoleArn", ROLE),
            optional("idlePolicy", IDLE_POLICY),
            optional("logging", LOGGING),
            optional("runHookPayload", plain(0, 4096)),
            optional("maximumDurationInSeconds", whole(1, 28_800)),
            optional("ingressNetworkConnectors", CONNECTORS),
            optional("egressNetworkConnectors", CONNECTORS),
            optional("kmsKeyIdentifier", KEY_ID),
            optional("clientToken", TOKEN),
        ]),
        ..operation("RunMicrovm", "POST", "2025-09-09/microvms")
    },
    operation("GetMicrovm", "GET", "2025-09-09/microvms/{microvmIdentifier}"),
    Operation {
        query: &[
            MAX_RESULTS,
            NEXT_TOKEN,
            optional("imageIdentifier", plain(1, 256)),
            optional("imageVersion", plain(0, 2048)),
        ],
        ..operation("ListMicrovms", "GET", "2025-09-09/microvms")
    },
    operation("SuspendMicrovm", "POST", "2025-09-09/microvms/{microvmIdentifier}/suspend"),
    operation("ResumeMicrovm", "POST", "2025-09-09/microvms/{microvmIdentifier}/resume"),
    operation("TerminateMicrovm", "DELETE", "2025-09-09/microvms/{microvmIdentifier}"),
    Operation {
        body: Some(&[
            // The most is checked where the service has words of its own for it.
            required("expirationInMinutes", whole(1, i32::MAX as i64)),
            required("allowedPorts", PORTS),
        ]),
        ..operation("CreateMicrovmAuthToken", "POST", "2025-09-09/microvms/{microvmIdentifier}/auth-token")
    },
    Operation {
        body: Some(&[required("expirationInMinutes", whole(1, i32::MAX as i64))]),
        ..operation("CreateMicrovmShellAuthToken", "POST", "2025-09-09/microvms/{microvmIdentifier}/shell-auth-token")
    },
    operation("ListTags", "GET", "2017-03-31/tags/{Resource}"),
    Operation {
        status: 204,
        body: Some(&[required("Tags", TAGS)]),
        ..operation("TagResource", "POST", "2017-03-31/tags/{Resource}")
    },
    Operation {
        status: 204,
        query: &[required(
            "tagKeys",
            Shape::List { of: &Shape::Text(Text { min: 1, max: 128, pattern: TAG }), min: 1, max: usize::MAX },
        )],
        ..operation("UntagResource", "DELETE", "2017-03-31/tags/{Resource}")
    },
];
