//! `fingerpost bundle`: policies for gates and grantors, in signed and versioned files.
//!
//! ```text
//!   bundle keygen KEY          makes a key, and KEY.pub for those who are to trust it
//!   bundle pack DIR|FILE…      judges what is there, signs it: a version, and who tries it first
//!   bundle release FILE        signs the same anew for a larger share
//!   bundle verify FILE         says whether a key has signed it, and whether it can be sound
//!   bundle show FILE           says what is in it
//!   bundle rollback, retry     has a running member go back a version, or forget what it refused
//! ```
//!
//! What is packed is judged as far as it can be without a member's own configuration; `gate check
//! --bundle` and `grantor check --bundle` judge the rest. Files are written whole or not at all, so that
//! whoever reads one meanwhile has the old or the new (docs/guide/distribution.md).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use fib::image::replace_with_mode;
use router::control::api::DistributionTold;
use router::distribution::bundle::{MOST_BYTES, MOST_FILES, pack, wrong_name};
use router::distribution::key::{PublicKey, SecretKey, hex};
use router::distribution::{Bundle, Header, Settings, Share, survey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::order;

/// What `bundle` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a key that signs: FILE, and FILE.pub for those who are to trust it
    Keygen {
        /// Where the secret key goes; nothing that is there is written over
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Sign a folder, or files, as one version
    Pack(Pack),
    /// Sign the same files anew, under the same version, for another share of members
    Release(Release),
    /// Say whether a key has signed a bundle, and whether what is in it can be sound
    Verify {
        /// The bundle
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Who is trusted: a file of `keygen`, or its 64 digits
        #[arg(long, value_name = "KEY", required = true)]
        public: Vec<String>,
    },
    /// Say what is in a bundle, whoever has signed it
    Show {
        /// The bundle
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Write JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Have a running gate or grantor go back to the version before, and refuse the one it has
    Rollback(order::Reload),
    /// Have a running gate or grantor forget which versions it refused
    Retry(order::Reload),
}

#[derive(clap::Args)]
struct Pack {
    /// A folder, whose files keep their names within it; or files, by their last names
    #[arg(value_name = "DIR|FILE", required = true)]
    what: Vec<PathBuf>,
    /// The version: higher than every one before
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    version: u64,
    /// The share of members that try it first
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    canary: Share,
    /// What it is signed with
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Where the bundle goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(clap::Args)]
struct Release {
    /// The bundle
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The share of members that take it without waiting
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    canary: Share,
    /// What it is signed with
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Where it goes; into its own place unless said
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Does what the verb says.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Keygen { file } => keygen(file),
        Verb::Pack(args) => packed(args),
        Verb::Release(args) => release(args),
        Verb::Verify { file, public } => verify(file, public),
        Verb::Show { file, json } => show(file, *json),
        Verb::Rollback(args) => order::rollback(args),
        Verb::Retry(args) => order::retry(args),
    }
}

fn keygen(file: &Path) -> anyhow::Result<ExitCode> {
    let mut public = file.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    for path in [file, &public] {
        let there = path.symlink_metadata().is_ok();
        ensure!(!there, "{}: it is there already: name another file", path.display());
    }
    let key = SecretKey::random().context("reading random numbers")?;
    let lines = [(file, key.text(), 0o600), (&public, key.public().to_string(), 0o644)];
    for (path, text, mode) in lines {
        let done = replace_with_mode(path, format!("{text}\n").as_bytes(), mode);
        done.with_context(|| format!("writing {}", path.display()))?;
    }
    writeln!(std::io::stdout(), "{}", key.public())?;
    Ok(ExitCode::SUCCESS)
}

fn secret(path: &Path) -> anyhow::Result<SecretKey> {
    SecretKey::load(path).map_err(anyhow::Error::msg)
}

/// Reads a file, no more of it than a bundle may have.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    let file = std::fs::File::open(path).with_context(reading)?;
    ensure!(file.metadata().with_context(reading)?.is_file(), "{}: no file", path.display());
    let mut bytes = Vec::new();
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(reading)?;
    Ok(bytes)
}

fn open(path: &Path, trusted: Option<&[PublicKey]>) -> anyhow::Result<Bundle> {
    Bundle::open(read(path)?, trusted).with_context(|| path.display().to_string())
}

/// Reads a bundle as a member would whose configuration is `config`.
pub(crate) fn of_member(
    file: &Path,
    config: &Path,
    settings: Option<&Settings>,
) -> anyhow::Result<Arc<Bundle>> {
    let settings = settings.with_context(|| {
        let shown = config.display();
        format!("{shown}: there is no [distribution] in it, so that no bundle would be taken")
    })?;
    Ok(Arc::new(open(file, Some(&settings.keys))?))
}

/// Says which bundle a configuration was judged with.
pub(crate) fn over(bundle: Option<&Bundle>) -> String {
    bundle.map_or_else(String::new, |it| format!(", with bundle {}", it.header().version))
}

/// Gathers the files of a folder, by their names in it.
fn gather(
    folder: &Path,
    before: &str,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> anyhow::Result<()> {
    let listing = || format!("listing {}", folder.display());
    for entry in folder.read_dir().with_context(listing)? {
        let entry = entry.with_context(listing)?;
        let path = entry.path();
        let name = format!("{before}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().with_context(listing)?;
        if kind.is_dir() && wrong_name(&name).is_none() {
            gather(&path, &format!("{name}/"), files)?;
        } else {
            // A link may lead anywhere, and to what is secret.
            ensure!(
                kind.is_file() || kind.is_dir(),
                "{}: no plain file: take it away",
                path.display()
            );
            add(&name, &path, files)?;
        }
    }
    Ok(())
}

fn add(name: &str, path: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    if let Some(why) = wrong_name(name) {
        bail!("{}: {why}: rename it or take it away", path.display());
    }
    ensure!(files.len() < MOST_FILES, "{}: more than {MOST_FILES} files", path.display());
    let twice = files.insert(name.to_owned(), read(path)?).is_some();
    ensure!(!twice, "{}: there is another file named {name}", path.display());
    Ok(())
}

fn packed(args: &Pack) -> anyhow::Result<ExitCode> {
    let mut files = BTreeMap::new();
    match &args.what[..] {
        [folder] if folder.is_dir() => gather(folder, "", &mut files)?,
        all => {
            for path in all {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                add(&name, path, &mut files)?;
            }
        }
    }
    if args.output.exists() {
        let last = open(&args.output, None).context("looking at what is to be replaced")?;
        ensure!(
            last.header().version < args.version,
            "{}: version {} is there: pack a higher one, or another file",
            args.output.display(),
            last.header().version
        );
    }
    let created = SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs();
    let header = Header { version: args.version, created, canary: args.canary };
    let bytes = pack(&header, &files, &secret(&args.key)?)?;
    let bundle = Bundle::open(bytes, None)?;
    let roles = survey(&bundle)?;
    write(&args.output, bundle.bytes())?;
    tell(&bundle, &format!("packed for {}", roles.join(" and ")))
}

fn release(args: &Release) -> anyhow::Result<ExitCode> {
    let key = secret(&args.key)?;
    let bundle = open(&args.file, None)?;
    let trusted = [*bundle.signer(), key.public()];
    ensure!(
        trusted[0] == trusted[1],
        "{}: signed with {}, and not with this key: take its key, or pack it",
        args.file.display(),
        trusted[0]
    );
    ensure!(
        bundle.header().canary <= args.canary,
        "{}: it is for {} already, and members that have it keep it: pack a higher version",
        args.file.display(),
        bundle.header().canary
    );
    let bundle = Bundle::open(bundle.release(args.canary, &key)?, None)?;
    write(args.output.as_ref().unwrap_or(&args.file), bundle.bytes())?;
    tell(&bundle, "signed anew")
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace_with_mode(path, bytes, 0o644).with_context(|| format!("writing {}", path.display()))
}

/// Says in a line what was done with a bundle.
fn tell(bundle: &Bundle, done: &str) -> anyhow::Result<ExitCode> {
    let Header { version, canary, .. } = bundle.header();
    let (files, bytes) = (bundle.files().count(), bundle.bytes().len());
    writeln!(
        std::io::stdout(),
        "version {version}: {done}, {files} files, {bytes} bytes, {canary} of members at once"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn verify(file: &Path, public: &[String]) -> anyhow::Result<ExitCode> {
    let key = |said: &String| {
        if let Some(key) = PublicKey::parse(said) {
            return Ok(key);
        }
        let text = std::fs::read_to_string(said).with_context(|| format!("reading {said}"))?;
        PublicKey::parse(&text)
            .with_context(|| format!("{said}: not the 64 hexadecimal digits of an Ed25519 key"))
    };
    let keys = public.iter().map(key).collect::<anyhow::Result<Vec<_>>>()?;
    let bundle = open(file, Some(&keys))?;
    let roles = survey(&bundle)?;
    tell(&bundle, &format!("signed by {}, for {}", bundle.signer(), roles.join(" and ")))
}

fn when(seconds: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let read = at.and_then(|at| jiff::Timestamp::try_from(at).ok());
    read.map_or_else(|| format!("{seconds} s after 1970"), |at| at.to_string())
}

fn show(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let bundle = open(file, None)?;
    let Header { version, created, canary } = *bundle.header();
    let mut out = std::io::stdout().lock();
    let digest = |content: &[u8]| hex(&Sha256::digest(content));
    if json {
        let each = |(name, content): (&str, &[u8])| json!({ "name": name, "bytes": content.len(), "sha256": digest(content) });
        let files: Vec<Value> = bundle.files().map(each).collect();
        let document = json!({
            "version": version,
            "created": created,
            "canary_percent": f64::from(canary.hundredths()) / 100.0,
            "signer": bundle.signer().to_string(),
            "contents": hex(bundle.contents()),
            "files": files,
        });
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "version {version}, packed {}, {canary} of members at once", when(created))?;
    writeln!(out, "signed by {} (whether to trust that is for you to say)", bundle.signer())?;
    for (name, content) in bundle.files() {
        writeln!(out, "{} {:>9} {name}", digest(content), content.len())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what a member tells of its bundles.
pub(crate) fn distribution(out: &mut impl Write, it: &DistributionTold) -> std::io::Result<()> {
    let version = it.version.map_or("the local configuration".into(), |it| format!("version {it}"));
    let left = it.remaining_seconds.map(|left| format!(", {left} s left")).unwrap_or_default();
    writeln!(out, "{}: {version}, {}{left}", it.name, it.state.replace('_', " "))?;
    it.reason.iter().try_for_each(|why| writeln!(out, "    {why}"))?;
    writeln!(out, "source {}", it.source)?;
    it.last_error.iter().try_for_each(|trouble| writeln!(out, "    {trouble}"))?;
    if let Some(offered) = it.offered {
        writeln!(out, "offered version {offered}")?;
    }
    if !it.previous.is_empty() {
        let before: Vec<_> = it.previous.iter().map(ToString::to_string).collect();
        writeln!(out, "to go back to: {}", before.join(", "))?;
    }
    writeln!(out, "taken so far: up to version {}", it.floor)?;
    for (version, why) in &it.refused {
        writeln!(out, "refused version {version}: {why}")?;
    }
    for (name, count) in it.counts.iter().filter(|(_, count)| **count > 0) {
        writeln!(out, "{name} {count}")?;
    }
    Ok(())
}
