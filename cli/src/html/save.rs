//! Writes a file completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::fail::Failure;

/// The path of a page, checked before the audit starts.
#[derive(Clone, Debug)]
pub struct OutputPath {
    pub(crate) path: PathBuf,
}

impl OutputPath {
    /// # Errors
    /// When its folder does not exist, or the path is not a regular file.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let refused = |why: &str| Failure::unfinished(format!("{} cannot be written: {why}", path.display()));
        let is_folder_by_name = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Err(refused("it is a folder; name a file in it")),
            // A rename would replace a pipe or a device with a file.
            Ok(found) if !found.is_file() => Err(refused("it is not a regular file")),
            // Replaces the target of a link, not the link.
            Ok(_) => Ok(Self { path: fs::canonicalize(path).map_err(|error| refused(&error.to_string()))? }),
            Err(_) if path.file_name().is_none() || is_folder_by_name => Err(refused("it has no file name")),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(&error.to_string())),
            Err(_) => {
                let folder = fs::canonicalize(folder_of(path)).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => refused("its folder does not exist; create it first"),
                    _ => refused(&error.to_string()),
                })?;
                Ok(Self { path: folder.join(path.file_name().unwrap_or_default()) })
            }
        }
    }

    /// Writes a temporary file and renames it, so that a reader sees the old page or the new one.
    ///
    /// # Errors
    /// When it cannot be written. The temporary file is then removed, and an existing page is unchanged.
    pub fn save(&self, text: &str) -> Result<(), Failure> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = folder_of(&self.path).join(format!(".{name:.40}.{}.tmp", std::process::id()));
        write(&temporary, text).and_then(|()| fs::rename(&temporary, &self.path)).map_err(|error| {
            // The first error is reported, even if this fails as well.
            let _ = fs::remove_file(&temporary);
            Failure::unfinished(format!("{} cannot be written: {error}", self.path.display()))
        })
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
