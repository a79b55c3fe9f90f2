//! The image of a daemon's tables: saved at its end, and forwarded by at its start.
//!
//! ```text
//!   start   links, neighbors asked ─► image read, checked, adopted ─► workers forward
//!                                        └─ routes dumped beside ─► their tables published
//!   stop, `fingerpost save`, every so often ─► plane ─► bytes ─► file, whole or not at all
//! ```
//!
//! Without an image no packet is taken before the dump is complete; Linux forwards until
//! then. With one, packets are taken at once and go where they went when it was saved, for
//! as long as the dump takes. A file that is not there, or is no sound image of these
//! tables, is no reason not to start: it is told ([`ImageStart`]), and the start goes on
//! without it.
//!
//! The control thread only copies the tables out. The file is written by a thread that
//! nothing waits for but who asked: a disk that takes its time must stop neither packets
//! nor the watchdog.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use feed::netlink::Kernel;
use fib::image::{Image, NotStorable, replace};
use port::af_xdp::Locals;

use super::{Daemon, dump, system};
use crate::handle::ControlHandle;
use crate::kernel_sync::KernelSync;
use crate::links;
use crate::plane::{AdoptError, Plane, SystemNames};
use crate::start::StartError;
use config::Config;

/// What came of the image at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageStart {
    /// None was asked for.
    #[default]
    Unasked,
    /// There is none yet.
    Missing,
    /// It cannot be used, for this reason.
    Refused(String),
    /// It was used.
    Used {
        /// How long after the start its tables were ready, links and neighbors known.
        ready: Duration,
        /// How long after the start the workers were at work.
        forwarding: Duration,
    },
}

/// An image that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: usize,
    /// How long it took, until the file would last.
    pub took: Duration,
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes, took } = self;
        write!(f, "{}: {bytes} bytes in {:.1} ms", path.display(), took.as_secs_f64() * 1e3)
    }
}

/// Says why no image was saved.
#[derive(Debug)]
pub enum SaveError {
    /// The configuration names no file.
    NoPath,
    /// The routes are not all known yet.
    TooSoon,
    /// The control thread does not answer.
    Gone,
    /// The engine of a table is none for images.
    NotStorable(NotStorable),
    /// The file cannot be written; what it held it has still.
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
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

/// Who saves an image, on whichever thread: a disk may take its time.
#[derive(Debug)]
pub(crate) struct Saver {
    path: PathBuf,
    handle: ControlHandle<KernelSync>,
    /// Held while the file is written.
    alone: Arc<Mutex<()>>,
}

impl Saver {
    /// Saves an image; returns the number of changes that it has, too.
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

/// The images that are saved while the router works.
#[derive(Debug)]
pub(super) struct Saves {
    /// When the tables were last looked at for changes.
    looked: Instant,
    /// The changes that the image has.
    changes: u64,
    saving: Option<JoinHandle<Result<(Saved, u64), SaveError>>>,
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
    /// Takes note of how a save has ended, once it has or, if asked to, waiting for it.
    fn take(&mut self, wait: bool) {
        let Some(saving) = self.saving.take_if(|saving| wait || saving.is_finished()) else {
            return;
        };
        self.last = Some(match saving.join() {
            Ok(Ok((saved, changes))) => {
                self.changes = changes;
                Ok(saved)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SaveError::Gone),
        });
    }
}

/// A start by an image, the workers not started yet.
pub(super) struct Early {
    pub(super) locals: Locals,
    ready: Duration,
}

/// Gives a plane without routes the tables of the image, if there is a sound one.
///
/// # Errors
///
/// What the system says of links and neighbors; never of the image.
pub(super) fn adopt(
    config: &Config,
    plane: &mut Plane,
    kernel: &mut Kernel,
    began: Instant,
) -> Result<(Option<Early>, ImageStart), StartError> {
    let Some(image) = &config.image else { return Ok((None, ImageStart::Unasked)) };
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
        // The plane has hops of it, and is to be made anew: no image has four billion.
        Err(AdoptError::Full(full)) => return Err(full.into()),
        Err(error) => return refused(error.to_string()),
    }
    let ready = began.elapsed();
    Ok((Some(Early { locals: locals.into_iter().collect(), ready }), ImageStart::Unasked))
}

impl Early {
    /// Goes on to the routes, the workers being at work since now.
    pub(super) fn go_on(
        &self,
        config: &Config,
        plane: &mut Plane,
        kernel: &mut Kernel,
        began: Instant,
    ) -> Result<ImageStart, StartError> {
        let forwarding = began.elapsed();
        dump(config, plane, kernel)?;
        Ok(ImageStart::Used { ready: self.ready, forwarding })
    }
}

/// Writes what a plane has to the file `path`.
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
    /// Returns what came of the image at the start.
    pub fn image_start(&self) -> &ImageStart {
        &self.image_start
    }

    /// Returns how the last attempt to save an image ended.
    pub fn last_save(&self) -> Option<&Result<Saved, SaveError>> {
        self.saves.last.as_ref()
    }

    /// Returns who saves an image of the tables to where the configuration says.
    ///
    /// # Errors
    ///
    /// [`SaveError::NoPath`].
    pub(crate) fn saver(&self) -> Result<Saver, SaveError> {
        let path = self.config.image.as_ref().ok_or(SaveError::NoPath)?.path.clone();
        Ok(Saver { path, handle: self.handle.clone(), alone: Arc::clone(&self.saves.alone) })
    }

    /// Begins to save an image if the configuration wants one now, and something has changed.
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
            let thread = Builder::new().name("image".into()).spawn(|| saver.save());
            self.saves.saving = thread.ok();
        }
    }

    /// Saves an image of what the control thread has left.
    pub(super) fn save_last(&mut self, following: &KernelSync) {
        self.saves.take(true);
        if let Some(image) = &self.config.image {
            let bytes = following.plane.save(&SystemNames);
            self.saves.last = Some(write(&image.path, bytes, Instant::now()));
        }
    }
}
