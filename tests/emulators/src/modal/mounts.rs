//! Build contexts: files that are kept by their digests, and lists of them.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tonic::Status;

use super::ids::new_id;
use super::proto::client::mount_put_file_request::DataOneof;
use super::proto::client::{
    MountBatchedCheckExistenceResponse, MountGetOrCreateRequest, MountGetOrCreateResponse, MountPutFileRequest,
    MountPutFileResponse, ObjectCreationType,
};
use super::status::{missing, violation};
use super::{Modal, Result};

/// Larger files go to the blob store, which is not emulated.
const LARGEST: usize = 4 << 20;

/// A file of a build context.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ContextFile {
    pub(super) name: String,
    pub(super) mode: u32,
    pub(super) data: Arc<Vec<u8>>,
}

impl Modal {
    pub(super) fn missing_files(&self, digests: Vec<String>) -> MountBatchedCheckExistenceResponse {
        let world = self.world();
        let missing = digests.into_iter().filter(|digest| !world.files.contains_key(digest)).collect();
        MountBatchedCheckExistenceResponse { missing_sha256_hex_hashes: missing }
    }

    /// Keeps a file; without content it is asked whether there is one.
    pub(super) fn put_file(&self, asked: MountPutFileRequest) -> Result<MountPutFileResponse> {
        let digest = asked.sha256_hex;
        match asked.data_oneof {
            None => {}
            Some(DataOneof::DataBlobId(_)) => return Err(Status::unimplemented("blobs are not emulated")),
            Some(DataOneof::Data(data)) if data.len() > LARGEST => {
                return Err(violation(format!("{} bytes: so large a file goes to the blob store", data.len())));
            }
            Some(DataOneof::Data(data)) => {
                let found: String = Sha256::digest(&data).iter().map(|byte| format!("{byte:02x}")).collect();
                if found != digest {
                    return Err(violation(format!("the file's digest is {found}, not {digest}")));
                }
                self.world().files.insert(digest.clone(), Arc::new(data));
            }
        }
        Ok(MountPutFileResponse { exists: self.world().files.contains_key(&digest) })
    }

    /// Makes a context that belongs to an app.
    pub(super) fn get_mount(&self, asked: MountGetOrCreateRequest) -> Result<MountGetOrCreateResponse> {
        match asked.object_creation_type() {
            ObjectCreationType::AnonymousOwnedByApp => self.check_app(&asked.app_id)?,
            other => return Err(Status::unimplemented(format!("mounts of {} are not emulated", other.as_str_name()))),
        }
        let mut world = self.world();
        let files: Result<Vec<ContextFile>> = asked
            .files
            .into_iter()
            .map(|file| {
                if !file.filename.starts_with('/') {
                    return Err(violation(format!("{:?} is not absolute", file.filename)));
                }
                let data = world.files.get(&file.sha256_hex).ok_or_else(|| missing("File", &file.sha256_hex))?;
                Ok(ContextFile {
                    name: file.filename,
                    mode: file.mode.unwrap_or(0o644) & 0o7777,
                    data: Arc::clone(data),
                })
            })
            .collect();
        let mut files = files?;
        files.sort_by(|a, b| a.name.cmp(&b.name));
        // Equal contexts are one, so that equal recipes make one image.
        if let Some((id, _)) = world.mounts.iter().find(|(_, known)| **known == files) {
            return Ok(MountGetOrCreateResponse { mount_id: id.clone() });
        }
        let mount_id = new_id("mo");
        world.mounts.insert(mount_id.clone(), files);
        Ok(MountGetOrCreateResponse { mount_id })
    }

    /// The files of a context.
    pub(super) fn mount(&self, id: &str) -> Result<Vec<ContextFile>> {
        self.world().mounts.get(id).cloned().ok_or_else(|| missing("Mount", id))
    }
}
