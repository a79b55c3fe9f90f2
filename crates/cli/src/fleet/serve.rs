//! `fingerpost fleet serve`: Debian's nats-server with JetStream on this machine, for the first hour.
//!
//! The server listens on the loopback interface without authentication, unless `--listen` says otherwise,
//! and keeps its data in `--store`. It ends with this command.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fleet::{Access, Broker, FleetUrl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stop::{SIGINT, SIGTERM, flag_on_signals};

/// Time limit of the server's start.
const START: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(50);

/// The arguments of `fleet serve`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Name of the fleet
    #[arg(long, value_name = "NAME", default_value = "site")]
    fleet: String,
    /// Address and port of the server
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4222")]
    listen: SocketAddr,
    /// Folder of the server's data
    #[arg(long, value_name = "DIR", default_value = "/var/lib/fingerpost/nats")]
    store: PathBuf,
}

/// The server, which is killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It writes its data to disk, and ends.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(args: &Args) -> anyhow::Result<Self> {
        fs::create_dir_all(&args.store)
            .with_context(|| format!("creating {}, which --store names", args.store.display()))?;
        let mut command = Command::new("nats-server");
        command.arg("--jetstream").arg("--store_dir").arg(&args.store);
        command.arg("--addr").arg(args.listen.ip().to_string());
        command.arg("--port").arg(args.listen.port().to_string());
        // Ctrl-C reaches this command alone, which ends the server.
        command.process_group(0).stdin(Stdio::null());
        command.spawn().map(Self).context(
            "starting nats-server: install it (Debian package nats-server), or use servers that run \
             already: fingerpost fleet create nats://HOST/FLEET",
        )
    }

    /// Returns an error if the server has ended.
    fn check_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.0.try_wait().context("waiting for nats-server")? {
            bail!("nats-server has ended, {status}: its messages are above");
        }
        Ok(())
    }
}

/// Runs the server until a signal.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let url: FleetUrl = format!("nats://{}/{}", args.listen, args.fleet).parse()?;
    // Another server there would get the fleet.
    if TcpStream::connect_timeout(&args.listen, START).is_ok() {
        bail!("{}: a server listens there already: stop it, or set --listen", args.listen);
    }
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let mut server = Server::start(args)?;
    let begin = Instant::now();
    while TcpStream::connect_timeout(&args.listen, START).is_err() {
        server.check_running()?;
        if stop.load(Ordering::Relaxed) {
            return Ok(ExitCode::SUCCESS);
        }
        if begin.elapsed() > START {
            bail!("nats-server does not listen at {} after {} s", args.listen, START.as_secs());
        }
        thread::sleep(INTERVAL);
    }
    Broker::connect(url.clone(), &Access::default())?.create(1)?;
    let mut out = std::io::stdout();
    writeln!(out, "{url}: ready")?;
    writeln!(out, "members: source = \"{url}\" and member_key in [distribution]")?;
    writeln!(out, "rollout: fingerpost fleet rollout {url} FILE --key KEY --members LIST")?;
    out.flush()?;
    while !stop.load(Ordering::Relaxed) {
        server.check_running()?;
        thread::sleep(INTERVAL);
    }
    Ok(ExitCode::SUCCESS)
}
