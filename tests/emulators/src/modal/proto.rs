//! The wire's messages and services: code generated of `proto/modal` by the crate `codegen`.

/// `modal.client`: the control plane.
#[allow(missing_docs, clippy::all)] // Generated; the .proto files say what it is.
pub mod client {
    include!("generated/modal.client.rs");
}

/// `modal.task_command_router`: commands and files.
#[allow(missing_docs, clippy::all)] // As above.
pub mod task_command_router {
    include!("generated/modal.task_command_router.rs");
}

/// The same as a `FileDescriptorSet`, to know which fields there are.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
