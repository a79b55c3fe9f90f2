//! The image of a daemon's tables: saved at the end, loaded at the start.
//!
//! ```text
//!   start   links, neighbors dumped ─► image read, checked, loaded ─► workers forward
//!                                         └─ routes dumped meanwhile ─► their tables published
//!   stop, `fingerpost save`, `image.interval` ─► plane ─► bytes ─► file, replaced atomically
//! ```
//!
//! Without an image the router receives no packet before the dump is complete; Linux forwards
//! until then. With an image it receives packets at once, and forwards them by the saved tables for
//! as long as the dump takes. A missing file, or one that is not a valid image of these tables,
//! does not prevent the start: the daemon reports it ([`ImageStart`]), and starts without it.
//!
//! The control thread only copies the tables out. Another thread writes the file, and only the
//! client that requested the image waits for it: a slow disk must stop neither packets nor the
//! watchdog.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use feed::netlink::Kernel;
use fib::image::{Image, NotStorable, replace};
use port::af_xdp::Locals;
use threads::{Rights, Task};

use super::{Daemon, RouteOrigin, dump, system};
use crate::handle::ControlHandle;
use crate::kernel_sync::KernelSync;
use crate::links;
use crate::plane::{AdoptError, Plane, SystemNames};
use crate::start::StartError;
use config::Config;

/// The result of loading the image at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageStart {
    /// The configuration names no image.
    #[default]
    NotConfigured,
    /// The file does not exist yet.
    Missing,
    /// The file cannot be used, for this reason.
    Refused(String),
    /// The image was used.
    Used {
        /// The time from the start until its tables, the links and the neighbors were known.
        ready: Duration,
        /// The time from the start until the workers forwarded.
        forwarding: Duration,
    },
}

/// A saved image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: usize,
    /// The time until the file was durable.
    pub took: Duration,
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes, took } = self;
        write!(f, "{}: {bytes} bytes in {:.1} ms", path.display(), took.as_secs_f64() * 1e3)
    }
}

/// The error of saving an image.
#[derive(Debug)]
pub enum SaveError {
    /// The configuration names no file.
    NoPath,
    /// Not all routes are known yet.
    TooSoon,
    /// The control thread does not answer.
    Gone,
    /// An image cannot store the engine of a table.
    NotStorable(NotStorable),
    /// The file cannot be written; its content is unchanged.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPath => f.write_str("the configuration names no file (`[image] path`)"),
            Self::TooSoon => f.write_str("not all routes are known yet; the image there is, stays"),
            Self::Gone => f.write_str("the control thread does not answer"),
            Self::NotStorable(error) => error.fmt(f),
            Self::File { path, source } => {
                write!(f, "{}: not saved: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for SaveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Saves an image, on any thread, because a disk may be slow.
#[derive(Debug)]
pub(crate) struct Saver {
    path: PathBuf,
    handle: ControlHandle<KernelSync>,
    /// Held while the file is written.
    alone: Arc<Mutex<()>>,
}

impl Saver {
    /// Saves an image; also returns the number of commits that it contains.
    pub(crate) fn save(self) -> Result<(Saved, u64), SaveError> {
        let began = Instant::now();
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = self.handle.call(|following: &mut KernelSync| {
            (following.plane.save(&SystemNames), following.plane.counts().commits)
        });
        let (bytes, changes) = answered.ok_or(SaveError::Gone)?;
        Ok((write(&self.path, bytes, began)?, changes))
    }
}

/// The saves of images while the router runs.
#[derive(Debug)]
pub(super) struct Saves {
    /// The time of the last check of the tables for changes.
    looked: Instant,
    /// The number of commits that the image contains.
    changes: u64,
    saving: Option<Task<Result<(Saved, u64), SaveError>>>,
    alone: Arc<Mutex<()>>,
    last: Option<Result<Saved, SaveError>>,
}

impl Default for Saves {
    fn default() -> Self {
        let (saving, alone, last) = (None, Arc::default(), None);
        Self { looked: Instant::now(), changes: 0, saving, alone, last }
    }
}

impl Saves {
    /// Records the result of the current save if it has ended; with `wait`, waits for its end.
    fn take(&mut self, wait: bool) {
        let Some(saving) = self.saving.take_if(|saving| wait || !saving.is_alive()) else {
            return;
        };
        self.last = Some(match saving.finish() {
            Ok(Ok((saved, changes))) => {
                self.changes = changes;
                Ok(saved)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SaveError::Gone),
        });
    }
}

/// The state of a start with an image, before the workers start.
pub(super) struct AdoptedImage {
    pub(super) locals: Locals,
    ready: Duration,
}

/// Loads the tables of the image, if there is a valid one, into a plane without routes.
///
/// # Errors
///
/// The system's errors for links and neighbors, and an image with too many targets. Any other error
/// of the image is an [`ImageStart::Refused`].
pub(super) fn adopt(
    config: &Config,
    plane: &mut Plane,
    kernel: &mut Kernel,
    began: Instant,
) -> Result<(Option<AdoptedImage>, ImageStart), StartError> {
    let Some(image) = &config.image else { return Ok((None, ImageStart::NotConfigured)) };
    let refused =
        |why: String| Ok((None, ImageStart::Refused(format!("{}: {why}", image.path.display()))));
    let bytes = match std::fs::read(&image.path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((None, ImageStart::Missing));
        }
        Err(error) => return refused(error.to_string()),
    };
    let image = match Image::read(&bytes) {
        Ok(image) => image,
        Err(error) => return refused(error.to_string()),
    };
    kernel.start_without_routes(plane)?;
    let locals = links::addresses().map_err(system("list the addresses"))?;
    match plane.adopt(&image, &locals, &SystemNames) {
        Ok(()) => {}
        // The plane already has hops of the image, so the start cannot continue without it. No
        // image has the four billion hops that this needs.
        Err(AdoptError::Full(full)) => return Err(full.into()),
        Err(error) => return refused(error.to_string()),
    }
    let ready = began.elapsed();
    Ok((
        Some(AdoptedImage { locals: locals.into_iter().collect(), ready }),
        ImageStart::NotConfigured,
    ))
}

impl AdoptedImage {
    /// Dumps the routes, after the workers have started.
    pub(super) fn finish(
        &self,
        config: &Config,
        plane: &mut Plane,
        kernel: &mut Kernel,
        began: Instant,
    ) -> Result<ImageStart, StartError> {
        let forwarding = began.elapsed();
        dump(config, RouteOrigin::Kernel, plane, kernel)?;
        Ok(ImageStart::Used { ready: self.ready, forwarding })
    }
}

/// Writes the image of a plane to the file `path`.
fn write(
    path: &Path,
    bytes: Result<Option<Vec<u8>>, NotStorable>,
    began: Instant,
) -> Result<Saved, SaveError> {
    let bytes = bytes.map_err(SaveError::NotStorable)?.ok_or(SaveError::TooSoon)?;
    replace(path, &bytes).map_err(|source| SaveError::File { path: path.into(), source })?;
    Ok(Saved { path: path.into(), bytes: bytes.len(), took: began.elapsed() })
}

impl Daemon {
    /// Returns the result of loading the image at the start.
    pub fn image_start(&self) -> &ImageStart {
        &self.image_start
    }

    /// Returns the result of the last save.
    pub fn last_save(&self) -> Option<&Result<Saved, SaveError>> {
        self.saves.last.as_ref()
    }

    /// Makes a saver, which writes an image of the tables to the configured file.
    ///
    /// # Errors
    ///
    /// [`SaveError::NoPath`].
    pub(crate) fn saver(&self) -> Result<Saver, SaveError> {
        let path = self.config.image.as_ref().ok_or(SaveError::NoPath)?.path.clone();
        Ok(Saver { path, handle: self.handle.clone(), alone: Arc::clone(&self.saves.alone) })
    }

    /// Starts to save an image if the configured interval has passed and the tables have changed.
    pub(super) fn save_sometimes(&mut self) {
        self.saves.take(false);
        let every = self.config.image.as_ref().and_then(|image| image.every);
        let due = every.is_some_and(|every| self.saves.looked.elapsed() >= every);
        if !due || self.saves.saving.is_some() {
            return;
        }
        self.saves.looked = Instant::now();
        let changes = self.handle.call(|following| following.plane.counts().commits);
        if changes.is_none_or(|changes| changes == self.saves.changes) {
            return;
        }
        if let Ok(saver) = self.saver() {
            self.saves.saving = Task::start("image", Rights::Inherited, |_| saver.save()).ok();
        }
    }

    /// Saves an image of the state that the control thread returned at its end.
    pub(super) fn save_last(&mut self, following: &KernelSync) {
        self.saves.take(true);
        if let Some(image) = &self.config.image {
            let bytes = following.plane.save(&SystemNames);
            self.saves.last = Some(write(&image.path, bytes, Instant::now()));
        }
    }
}
