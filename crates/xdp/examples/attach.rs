//! Attaches the lookups in a file's routes to a loaded program, in the place of its functions `fingerpost_lookup4` and
//! `fingerpost_lookup6`. Each line on standard input reads the file again; the table changes in place. The end of the
//! process brings the program's own functions back.
//!
//! `cargo run --release -p fingerpost-xdp --example attach -- ID FILE` (ID as `ip link` or `bpftool prog` shows it)
//!
//! The labels of the file are numbers of 1 to 2^30 - 1.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use feed::{Label, Labels, Options, RoutingTable};
use fib::{Choice, Family, Hop, Prefix, Rib, Updater};
use fingerpost_xdp::{Attachment, BpfArrays, KernelTable, Publication};
use port::af_xdp::bpf::Function;

/// The routes of a family, in the kernel and attached.
struct Table<A: Family> {
    updater: Updater<A>,
    kernel: KernelTable<A>,
    attachment: Attachment,
}

impl<A: Family> Table<A> {
    /// `None` if the program has no such function.
    fn attach(id: u32, name: &str, rib: Rib<A>) -> Result<Option<Self>, Box<dyn Error>> {
        let function = match Function::find(id, name) {
            Ok(function) => function,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                writeln!(io::stderr(), "{error}")?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let files = BpfArrays::new("chunks");
        let updater = Updater::new_in(rib, Choice::Flat, 1, Arc::clone(&files) as _)?;
        let kernel = KernelTable::new(&files, updater.fib())?;
        let attachment = Attachment::new(function, kernel.arrays())?;
        Ok(Some(Self { updater, kernel, attachment }))
    }

    /// Brings the table to these routes.
    fn change(&mut self, rib: &Rib<A>) -> Result<(), Box<dyn Error>> {
        let withdrawn: Vec<_> = self.updater.rib().iter().map(|(prefix, _)| prefix).collect();
        for prefix in withdrawn.into_iter().filter(|&prefix| rib.get(prefix).is_none()) {
            self.updater.withdraw(prefix);
        }
        for (prefix, hop) in rib {
            self.updater.announce(prefix, hop);
        }
        self.updater.commit()?;
        if self.kernel.publish(self.updater.fib())? == Publication::Replaced {
            self.attachment.replace(self.kernel.arrays())?;
        }
        Ok(())
    }
}

fn rib<A: Family>(
    routes: &[(Prefix<A>, Label)],
    labels: &Labels,
) -> Result<Rib<A>, Box<dyn Error>> {
    let mut rib = Rib::new();
    for &(prefix, label) in routes {
        let text = labels.get(label);
        let number = text.parse().ok().filter(|number| (1..1 << 30).contains(number));
        let number =
            number.ok_or_else(|| format!("{prefix}: the label {text} is not 1 to 2^30 - 1"))?;
        rib.insert(prefix, Hop(number));
    }
    Ok(rib)
}

fn load(file: &Path) -> Result<RoutingTable, Box<dyn Error>> {
    Ok(feed::load(file, &Options::default())?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "attach: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [id, file] = &arguments[..] else {
        return Err("usage: attach ID FILE".into());
    };
    let id = id.to_str().and_then(|id| id.parse().ok()).ok_or("ID is the number of a program")?;
    let routes = load(file.as_ref())?;
    let mut v4 = Table::attach(id, "fingerpost_lookup4", rib(&routes.v4, &routes.labels)?)?;
    let mut v6 = Table::attach(id, "fingerpost_lookup6", rib(&routes.v6, &routes.labels)?)?;
    if v4.is_none() && v6.is_none() {
        return Err("nothing to attach to".into());
    }
    writeln!(io::stdout(), "attached: {} routes", routes.v4.len() + routes.v6.len())?;
    for line in io::stdin().lines() {
        line?;
        let routes = load(file.as_ref())?;
        if let Some(table) = &mut v4 {
            table.change(&rib(&routes.v4, &routes.labels)?)?;
        }
        if let Some(table) = &mut v6 {
            table.change(&rib(&routes.v6, &routes.labels)?)?;
        }
        writeln!(io::stdout(), "changed: {} routes", routes.v4.len() + routes.v6.len())?;
    }
    Ok(())
}
