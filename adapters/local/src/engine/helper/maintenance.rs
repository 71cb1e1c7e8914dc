//! Work on the files of sandboxes and images, done under the id map that owns them.

use std::fs;
use std::path::Path;

use crate::engine::boot::{Failure, Step};
use crate::engine::image::{self, Unpack};

/// Deletes a tree. In the user namespace we may enter and empty every directory whose owner is mapped.
pub(super) fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::new(Step::Work, path.display(), &error))
        }
        _ => Ok(()),
    }
}

/// Unpacks an image.
pub(super) fn unpack(unpack: &Unpack) -> Result<(), Failure> {
    image::unpack(unpack).map_err(|error| Failure::new(Step::Work, unpack.target.display(), &error))
}
