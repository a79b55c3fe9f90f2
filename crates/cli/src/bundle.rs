//! `fingerpost bundle`: packs, signs and inspects policies for gates and grantors.
//!
//! ```text
//!   bundle keygen KEY          generates a secret key, and KEY.pub with its public key
//!   bundle pack DIR|FILE…      checks the files and signs them, with a version and a canary share
//!   bundle release FILE        signs the same files for a larger share of members
//!   bundle verify FILE         checks the signature and the contents
//!   bundle show FILE           prints the header and the files
//!   bundle rollback, retry     rolls a running member back, or clears its refused versions
//! ```
//!
//! `pack` and `verify` check the contents as far as possible without the configuration of a member;
//! `gate check --bundle` and `grantor check --bundle` check the rest. Files are replaced atomically,
//! so that a member reads the old or the new one (docs/guide/distribution.md).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::bundle_check::check_bundle;
use anyhow::{Context, bail, ensure};
use api::DistributionStatus;
use api::hexadecimal;
use bundle::bundle::{MAX_BUNDLE_BYTES, MAX_FILES, name_error, pack};
use bundle::key::{PublicKey, SecretKey};
use bundle::{Bundle, BundleHeader, CanaryShare, DistributionConfig};
use clap::Subcommand;
use fib::image::replace_with_mode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::order;

/// The arguments of `bundle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Generate a key that signs bundles: FILE, and its public key FILE.pub
    Keygen {
        /// File of the secret key; it must not exist
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Pack a folder, or files, into a signed bundle
    Pack(PackArgs),
    /// Sign a bundle again, with the same version and files, for a larger share of members
    Release(ReleaseArgs),
    /// Check the signature and the contents of a bundle
    Verify {
        /// Bundle to check
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Trusted public key: a file that `keygen` wrote, or its 64 hexadecimal digits
        #[arg(long, value_name = "KEY", required = true)]
        public: Vec<String>,
    },
    /// Show the contents of a bundle, without checking the signer
    Show {
        /// Bundle to show
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Write JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Roll a running gate or grantor back to its previous version, and refuse the current one
    Rollback(order::OrderArgs),
    /// Clear the refused versions of a running gate or grantor, so that it may apply them again
    Retry(order::OrderArgs),
}

#[derive(clap::Args)]
struct PackArgs {
    /// Folder, whose files keep their relative paths; or files, by their file names
    #[arg(value_name = "DIR|FILE", required = true)]
    paths: Vec<PathBuf>,
    /// Version: higher than every earlier one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    version: u64,
    /// Share of members that apply the version first, in percent
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    canary: CanaryShare,
    /// Secret key that signs the bundle
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Bundle to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(clap::Args)]
struct ReleaseArgs {
    /// Bundle to sign again
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Share of members that apply the version without the canary delay, in percent
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    canary: CanaryShare,
    /// Secret key that signs the bundle: the key of the first signature
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Bundle to write [default: replace FILE]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Keygen { file } => keygen(file),
        Verb::Pack(args) => pack_bundle(args),
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
        let exists = path.symlink_metadata().is_ok();
        ensure!(!exists, "{}: file exists: name another one", path.display());
    }
    let key = SecretKey::generate().context("reading random numbers")?;
    let lines = [(file, key.to_hex(), 0o600), (&public, key.public().to_string(), 0o644)];
    for (path, text, mode) in lines {
        let done = replace_with_mode(path, format!("{text}\n").as_bytes(), mode);
        done.with_context(|| format!("writing {}", path.display()))?;
    }
    writeln!(std::io::stdout(), "{}", key.public())?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a secret key.
pub(crate) fn secret(path: &Path) -> anyhow::Result<SecretKey> {
    SecretKey::load(path).map_err(anyhow::Error::msg)
}

/// Reads a regular file, at most a byte more than a bundle may have.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    let file = std::fs::File::open(path).with_context(reading)?;
    ensure!(
        file.metadata().with_context(reading)?.is_file(),
        "{}: not a regular file",
        path.display()
    );
    let mut bytes = Vec::new();
    file.take(MAX_BUNDLE_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(reading)?;
    Ok(bytes)
}

/// Reads a bundle that one of the `trusted` keys has signed; with `None`, any key.
pub(crate) fn open(path: &Path, trusted: Option<&[PublicKey]>) -> anyhow::Result<Bundle> {
    Bundle::open(read(path)?, trusted).with_context(|| path.display().to_string())
}

/// Reads a bundle with the trusted keys of the member whose configuration file is `path`.
pub(crate) fn read_for_member(
    file: &Path,
    path: &Path,
    config: Option<&DistributionConfig>,
) -> anyhow::Result<Arc<Bundle>> {
    let config = config.with_context(|| {
        format!("{}: no section [distribution]: the member accepts no bundles", path.display())
    })?;
    Ok(Arc::new(open(file, Some(&config.keys))?))
}

/// Returns `, with bundle VERSION`, or nothing without a bundle.
pub(crate) fn summary_suffix(bundle: Option<&Bundle>) -> String {
    bundle.map_or_else(String::new, |bundle| format!(", with bundle {}", bundle.header().version))
}

/// Collects the files of a folder, by their relative paths.
fn collect_folder(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> anyhow::Result<()> {
    let listing = || format!("listing {}", folder.display());
    for entry in folder.read_dir().with_context(listing)? {
        let entry = entry.with_context(listing)?;
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().with_context(listing)?;
        if kind.is_dir() && name_error(&name).is_none() {
            collect_folder(&path, &format!("{name}/"), files)?;
        } else {
            // A symbolic link may lead to a secret file.
            ensure!(
                kind.is_file() || kind.is_dir(),
                "{}: not a regular file: remove it",
                path.display()
            );
            add_file(&name, &path, files)?;
        }
    }
    Ok(())
}

fn add_file(name: &str, path: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    if let Some(why) = name_error(name) {
        bail!("{}: {why}: rename or remove the file", path.display());
    }
    ensure!(files.len() < MAX_FILES, "{}: more than {MAX_FILES} files", path.display());
    let duplicate = files.insert(name.to_owned(), read(path)?).is_some();
    ensure!(!duplicate, "{}: duplicate file name {name}", path.display());
    Ok(())
}

fn pack_bundle(args: &PackArgs) -> anyhow::Result<ExitCode> {
    let mut files = BTreeMap::new();
    match &args.paths[..] {
        [folder] if folder.is_dir() => collect_folder(folder, "", &mut files)?,
        all => {
            for path in all {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                add_file(&name, path, &mut files)?;
            }
        }
    }
    if args.output.exists() {
        let last = open(&args.output, None).context("reading the bundle to replace")?;
        ensure!(
            last.header().version < args.version,
            "{}: has version {}: pack a higher version, or write another file",
            args.output.display(),
            last.header().version
        );
    }
    let created = SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs();
    let header = BundleHeader::new(args.version, created, args.canary);
    let bytes = pack(&header, &files, &secret(&args.key)?)?;
    let bundle = Bundle::open(bytes, None)?;
    let roles = check_bundle(&bundle)?;
    write(&args.output, bundle.bytes())?;
    print_summary(&bundle, &format!("packed for {}", roles.join(" and ")))
}

fn release(args: &ReleaseArgs) -> anyhow::Result<ExitCode> {
    let key = secret(&args.key)?;
    let bundle = open(&args.file, None)?;
    let trusted = [*bundle.signer(), key.public()];
    ensure!(
        trusted[0] == trusted[1],
        "{}: signed with {}, not with the key of --key: use that key, or pack the bundle again",
        args.file.display(),
        trusted[0]
    );
    ensure!(
        bundle.header().canary <= args.canary,
        "{}: released for {} already, and a share cannot shrink: pack a higher version",
        args.file.display(),
        bundle.header().canary
    );
    let bundle = Bundle::open(bundle.release(args.canary, &key)?, None)?;
    write(args.output.as_ref().unwrap_or(&args.file), bundle.bytes())?;
    print_summary(&bundle, "signed again")
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace_with_mode(path, bytes, 0o644).with_context(|| format!("writing {}", path.display()))
}

/// Prints one line about a bundle.
fn print_summary(bundle: &Bundle, done: &str) -> anyhow::Result<ExitCode> {
    let BundleHeader { version, canary, .. } = bundle.header();
    let (files, bytes) = (bundle.files().count(), bundle.bytes().len());
    writeln!(
        std::io::stdout(),
        "version {version}: {done}, {files} files, {bytes} bytes, canary share {canary}"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn verify(file: &Path, public: &[String]) -> anyhow::Result<ExitCode> {
    let key = |argument: &String| {
        if let Some(key) = PublicKey::parse(argument) {
            return Ok(key);
        }
        let text =
            std::fs::read_to_string(argument).with_context(|| format!("reading {argument}"))?;
        PublicKey::parse(&text)
            .with_context(|| format!("{argument}: not the 64 hexadecimal digits of an Ed25519 key"))
    };
    let keys = public.iter().map(key).collect::<anyhow::Result<Vec<_>>>()?;
    let bundle = open(file, Some(&keys))?;
    let roles = check_bundle(&bundle)?;
    print_summary(&bundle, &format!("signed by {}, for {}", bundle.signer(), roles.join(" and ")))
}

/// Formats a time in seconds since 1970.
fn time_text(seconds: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let read = at.and_then(|at| jiff::Timestamp::try_from(at).ok());
    read.map_or_else(|| format!("{seconds} s after 1970"), |at| at.to_string())
}

fn show(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let bundle = open(file, None)?;
    let BundleHeader { version, created, canary, staged, label } = *bundle.header();
    let mut out = std::io::stdout().lock();
    let digest = |content: &[u8]| hexadecimal(&Sha256::digest(content));
    if json {
        let entry = |(name, content): (&str, &[u8])| json!({ "name": name, "bytes": content.len(), "sha256": digest(content) });
        let files: Vec<Value> = bundle.files().map(entry).collect();
        let document = json!({
            "version": version,
            "created": created,
            "canary_percent": f64::from(canary.hundredths()) / 100.0,
            "staged": staged,
            "label": label.map(|label| label.to_string()),
            "signer": bundle.signer().to_string(),
            "contents": hexadecimal(bundle.contents()),
            "files": files,
        });
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let label = label.map(|label| format!(", label {label}")).unwrap_or_default();
    let only = if staged { ", for no other members" } else { "" };
    let packed = time_text(created);
    writeln!(out, "version {version}, packed {packed}, canary share {canary}{label}{only}")?;
    writeln!(out, "signed by {} (not checked against trusted keys)", bundle.signer())?;
    for (name, content) in bundle.files() {
        writeln!(out, "{} {:>9} {name}", digest(content), content.len())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the distribution status of a member.
pub(crate) fn write_distribution(
    out: &mut impl Write,
    status: &DistributionStatus,
) -> std::io::Result<()> {
    let version = status
        .version
        .map_or("the local configuration".into(), |version| format!("version {version}"));
    let seconds = status.remaining_seconds;
    let remaining = seconds.map(|seconds| format!(", {seconds} s left")).unwrap_or_default();
    let state = status.state.replace('_', " ");
    writeln!(out, "{}: {version}, {state}{remaining}", status.name)?;
    status.reason.iter().try_for_each(|reason| writeln!(out, "    {reason}"))?;
    if !status.labels.is_empty() {
        writeln!(out, "labels {}", status.labels.join(", "))?;
    }
    writeln!(out, "source {}", status.source)?;
    status.last_error.iter().try_for_each(|error| writeln!(out, "    {error}"))?;
    if let Some(offered) = status.offered {
        writeln!(out, "offered version {offered}")?;
    }
    if !status.previous.is_empty() {
        let previous: Vec<_> = status.previous.iter().map(ToString::to_string).collect();
        writeln!(out, "previous versions: {}", previous.join(", "))?;
    }
    writeln!(out, "highest version applied: {}", status.floor)?;
    if let Some(blocked) = &status.blocked {
        writeln!(
            out,
            "prefixes blocked by the fleet: {}, list {}",
            blocked.applied, blocked.sequence
        )?;
        for (prefix, why) in &blocked.refused {
            writeln!(out, "{prefix} is not blocked: {why}")?;
        }
    }
    for (version, reason) in &status.refused {
        writeln!(out, "refused version {version}: {reason}")?;
    }
    for (name, count) in status.counts.iter().filter(|(_, count)| **count > 0) {
        writeln!(out, "{name} {count}")?;
    }
    Ok(())
}
