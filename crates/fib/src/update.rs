//! Routes and a published table that is kept equal to them.
//!
//! ```text
//!   announce, withdraw ─► Rib ─► dirty blocks ─► runs ─► builder ──refresh──► idle Fib
//!                                                                               │ publish
//!        idle Fib ◄── reclaim ── retired Fib ◄── every reader has passed ◄──────┘
//! ```
//!
//! [`Updater::commit`] turns all changes since the last one into one publication:
//! however many updates hit a block, it is rebuilt once (thesis section 3.5). Two
//! tables alternate (`double_buffer.rs`): while readers use one, the other is idle, and is patched
//! before it is published.
//!
//! A change costs O(routes and ranges of the blocks it touches). The resulting table gives the same
//! answer for every address as one built from scratch.

#[cfg(target_os = "linux")]
use alloc::sync::Arc;
use core::fmt;

#[cfg(target_os = "linux")]
use crate::WordFiles;
use crate::choice::Choice;
use crate::double_buffer::DoubleBuffer;
use crate::fib::{Fib, FibBuilder};
use crate::{Family, Full, Hop, Prefix, Reader, Rib};

/// Routes, the table made of them, and the readers of that table.
pub struct Updater<A: Family> {
    rib: Rib<A>,
    layout: Layout,
    builder: FibBuilder<A>,
    buffers: DoubleBuffer<Fib<A>>,
    /// The builder holds changes that are not yet published.
    behind: bool,
    /// The builder has exceeded a limit during a patch and must be replaced.
    broken: bool,
    /// The number of tables published after the first.
    publications: u64,
}

/// How an updater builds a table from scratch.
struct Layout {
    choice: Choice,
    threads: usize,
    /// Creates the files in which shared words lie, if not ordinary memory.
    #[cfg(target_os = "linux")]
    files: Option<Arc<dyn WordFiles>>,
}

impl Layout {
    fn new(choice: Choice, threads: usize) -> Self {
        Self {
            choice,
            threads,
            #[cfg(target_os = "linux")]
            files: None,
        }
    }

    fn build<A: Family>(&self, rib: &Rib<A>) -> Result<FibBuilder<A>, Full> {
        #[cfg_attr(not(target_os = "linux"), expect(unused_mut, reason = "no files there"))]
        let mut builder = FibBuilder::build(rib, self.choice, self.threads)?;
        #[cfg(target_os = "linux")]
        if let Some(files) = &self.files {
            builder.place_in(Arc::clone(files));
        }
        Ok(builder)
    }
}

/// The result of one [`Updater::commit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The number of blocks that were laid out again; for an engine that keeps routes, the number of
    /// routes.
    pub blocks: usize,
    /// The table was built from scratch: because of many changes, a limit that required a wider
    /// layout, or holes in more than a sixteenth of the table.
    pub rebuilt: bool,
    /// Readers get the committed table. If false, readers still hold two tables; commit again.
    pub published: bool,
}

impl<A: Family> Updater<A> {
    /// Builds the first table of `rib` with `threads` threads and publishes it.
    ///
    /// # Errors
    ///
    /// [`Full`] if the routes exceed every width of the chosen engine.
    pub fn new(rib: Rib<A>, choice: Choice, threads: usize) -> Result<Self, Full> {
        Self::with(rib, Layout::new(choice, threads))
    }

    /// The same with the words in files that tables share, for programs that read them there: the chunks of
    /// [`Choice::Flat`] and [`Choice::Rank`]. The words that a table reaches do not change while a
    /// [`PoolSnapshot`](crate::PoolSnapshot) of it lives; another program therefore
    /// needs one that lives as long as it may read.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). A file that cannot be created is no error: the words are in ordinary
    /// memory then.
    #[cfg(target_os = "linux")]
    pub fn new_in(
        rib: Rib<A>,
        choice: Choice,
        threads: usize,
        files: Arc<dyn WordFiles>,
    ) -> Result<Self, Full> {
        let layout = Layout { files: Some(files), ..Layout::new(choice, threads) };
        Self::with(rib, layout)
    }

    fn with(mut rib: Rib<A>, layout: Layout) -> Result<Self, Full> {
        rib.mark_clean();
        let builder = layout.build(&rib)?;
        let buffers = DoubleBuffer::new(builder.freeze());
        Ok(Self { rib, layout, builder, buffers, behind: false, broken: false, publications: 0 })
    }

    /// Returns the routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Returns the published table.
    pub fn fib(&self) -> &Fib<A> {
        self.buffers.current()
    }

    /// Adds a reader, for one thread that looks addresses up.
    pub fn reader(&self) -> Reader<Fib<A>> {
        self.buffers.reader()
    }

    /// Returns whether every reader has left all tables but the one published last. Hops that are not
    /// in that table may then be assigned to other next hops.
    pub fn passed(&self) -> bool {
        self.buffers.passed()
    }

    /// Publishes a table from another source, such as an image, in place of that of the routes. The
    /// next commit publishes the table of the routes, whether they have changed or not.
    pub fn adopt(&mut self, mut fib: Fib<A>) {
        self.publications += 1;
        FibBuilder::number(&mut fib, self.publications);
        self.buffers.adopt(fib);
        self.behind = true;
    }

    /// Adds a route or changes its hop, from the next commit on. Returns the hop it had, which may be
    /// assigned to another next hop only when a later commit is published and every reader has
    /// [`passed`](Self::passed).
    pub fn announce(&mut self, prefix: Prefix<A>, hop: Hop) -> Option<Hop> {
        self.rib.insert(prefix, hop)
    }

    /// Removes a route, from the next commit on, and returns the hop it had.
    pub fn withdraw(&mut self, prefix: Prefix<A>) -> Option<Hop> {
        self.rib.remove(prefix)
    }

    /// Returns the number of the present table: how many were published after the first.
    pub fn generation(&self) -> u64 {
        self.publications
    }

    /// Returns the number of 64-bit words written into the table since it was last built whole, that
    /// build included (Fu 2020, figure 3.11).
    pub fn written(&self) -> u64 {
        self.builder.written()
    }

    /// Returns whether a commit would change the table that readers get.
    pub fn is_behind(&self) -> bool {
        self.behind || self.broken || self.rib.dirty_len() > 0
    }

    /// Publishes all changes since the last commit as one.
    ///
    /// # Errors
    ///
    /// [`Full`] if the routes exceed every width of the engine. Readers keep the
    /// table they have, the routes keep all changes, and a commit after some
    /// withdrawals may succeed.
    pub fn commit(&mut self) -> Result<Commit, Full> {
        let mut commit = Commit::default();
        if !self.is_behind() {
            commit.published = true;
            return Ok(commit);
        }
        // From a quarter of the table on, one sweep of all is cheaper than sweeps of blocks.
        let many = self.rib.dirty_len() > 1024.max(self.rib.len() / 4);
        if many || self.broken {
            self.rebuild(&mut commit)?;
        } else {
            match self.builder.follow(&mut self.rib) {
                // With many holes the table outgrows the cache for which its engine was selected.
                Ok(_) if self.builder.holes() > self.fib().footprint() / 16 => {
                    self.rebuild(&mut commit)?;
                }
                Ok(blocks) => commit.blocks = blocks,
                Err(_) => self.rebuild(&mut commit)?,
            }
        }
        self.behind = true;
        self.publish(&mut commit);
        Ok(commit)
    }

    fn rebuild(&mut self, commit: &mut Commit) -> Result<(), Full> {
        self.rib.mark_clean();
        self.broken = true;
        self.builder = self.layout.build(&self.rib)?;
        self.broken = false;
        self.buffers.renew();
        commit.rebuilt = true;
        Ok(())
    }

    /// Publishes the builder's table, if a copy is free.
    fn publish(&mut self, commit: &mut Commit) {
        let (builder, number) = (&self.builder, self.publications + 1);
        commit.published = self.buffers.publish(
            || builder.freeze(),
            |idle| builder.refresh(idle),
            |fib| FibBuilder::number(fib, number),
        );
        if commit.published {
            self.publications = number;
            self.behind = false;
        }
    }
}

impl<A: Family> fmt::Debug for Updater<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Updater({} routes, {:?})", self.rib.len(), self.fib())
    }
}
