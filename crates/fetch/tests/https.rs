//! HTTPS against `openssl s_server`, which is independent of the client's TLS: trusted, unknown and
//! misnamed certificates, the system's roots, and a body that ends early.
//!
//! The system's roots depend on the environment, which a test must not change for its process: such
//! a test starts this program again, with the environment and with a URL to fetch.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fingerpost_fetch::{Client, FetchCause, Fetched};
use threads::Stop;

/// A folder of a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("fingerpost-https-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a key and a certificate that it signs itself: `NAME.key`, `NAME.pem`.
    fn certify(&self, name: &str, alternative_name: &str, authority: &str) -> PathBuf {
        let subject = format!("/CN={name}");
        let name_extension = format!("subjectAltName={alternative_name}");
        let authority_extension = format!("basicConstraints=critical,CA:{authority}");
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-nodes", "-days", "2", "-subj", &subject, "-addext", &name_extension]);
        command.args(["-addext", &authority_extension, "-keyout", &key, "-out", &certificate]);
        check(&command.current_dir(&self.0).output().expect("openssl is installed"));
        self.path(&certificate)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn check(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A server of the files of a folder, each a complete response with its headers.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server with the certificate `NAME.pem`, and further arguments.
    fn start(folder: &Folder, name: &str, arguments: &[&str]) -> Self {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-HTTP", "-key", &key])
            .args(["-cert", &certificate])
            .args(arguments)
            .current_dir(&folder.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        // The line "ACCEPT 127.0.0.1:PORT" states the port that the system has chosen.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines
            .find_map(|line| line.unwrap().strip_prefix("ACCEPT 127.0.0.1:")?.trim().parse().ok());
        // Reads all further output, which the server would wait for.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port: port.expect("the server states its port") }
    }

    /// Returns a client that trusts the certificates of a file alone.
    fn client(&self, host: &str, file: &str, roots: &Path) -> Client {
        let url = format!("https://{host}:{}/{file}", self.port);
        Client::new(url.parse().unwrap(), 1 << 20).with_root_file(roots.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_response(folder: &Folder, file: &str, length: usize, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nETag: \"a\"\r\n\r\n");
    fs::write(folder.path(file), [head.as_bytes(), body].concat()).unwrap();
}

/// Requires that a request fails in TLS, with this part of its message.
fn refuse(client: &mut Client, part: &str) {
    let error = client.get(&Stop::default()).unwrap_err();
    assert!(matches!(error.cause, FetchCause::Tls(_)), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn content_of_trusted_server_is_fetched_by_both_versions_of_tls() {
    let folder = Folder::new("trusted");
    let roots = folder.certify("server", "IP:127.0.0.1,DNS:localhost", "FALSE");
    // Several TLS records, and a body that hyper reads in several frames.
    let body: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    write_response(&folder, "list.txt", body.len(), &body);
    for version in ["-tls1_2", "-tls1_3"] {
        let server = Server::start(&folder, "server", &[version]);
        for host in ["127.0.0.1", "localhost"] {
            let mut client = server.client(host, "list.txt", &roots);
            for _ in 0..2 {
                let fetched = client.get(&Stop::default()).unwrap();
                assert!(fetched == Fetched::New(body.clone()), "{version} {host}");
            }
            assert_eq!(client.validators().etag.as_deref(), Some("\"a\""));
        }
    }
}

#[test]
fn incomplete_body_over_tls_is_refused() {
    let folder = Folder::new("incomplete");
    let roots = folder.certify("server", "IP:127.0.0.1", "FALSE");
    write_response(&folder, "list.txt", 50, b"first");
    let server = Server::start(&folder, "server", &[]);
    let error = server.client("127.0.0.1", "list.txt", &roots).get(&Stop::default()).unwrap_err();
    assert!(matches!(error.cause, FetchCause::Http(_)), "{error}");
}

#[test]
fn certificate_that_proves_nothing_is_refused() {
    let folder = Folder::new("refused");
    folder.certify("server", "IP:127.0.0.1", "FALSE");
    let other = folder.certify("other", "IP:127.0.0.1", "FALSE");
    write_response(&folder, "list.txt", 1, b"x");
    let server = Server::start(&folder, "server", &[]);
    let unknown = "UnknownIssuer: add its issuer to the trusted root certificates";
    refuse(&mut server.client("127.0.0.1", "list.txt", &other), unknown);
    // A certificate that is trusted, for another name.
    let named = folder.certify("named", "DNS:lists.example", "FALSE");
    let server = Server::start(&folder, "named", &[]);
    refuse(&mut server.client("127.0.0.1", "list.txt", &named), "certificate not valid for name");
    // The default of `openssl req -x509`.
    let authority = folder.certify("authority", "IP:127.0.0.1", "TRUE");
    let server = Server::start(&folder, "authority", &[]);
    let text = "it is that of an authority (CA:TRUE)";
    refuse(&mut server.client("127.0.0.1", "list.txt", &authority), text);
}

#[test]
fn root_added_after_a_refusal_is_trusted() {
    let folder = Folder::new("added");
    let server_root = folder.certify("server", "IP:127.0.0.1", "FALSE");
    let roots = folder.certify("other", "IP:127.0.0.1", "FALSE");
    write_response(&folder, "list.txt", 1, b"x");
    let server = Server::start(&folder, "server", &[]);
    let mut client = server.client("127.0.0.1", "list.txt", &roots);
    refuse(&mut client, "UnknownIssuer");
    fs::copy(server_root, &roots).unwrap();
    assert_eq!(client.get(&Stop::default()).unwrap(), Fetched::New(b"x".to_vec()));
}

#[test]
fn root_file_without_certificates_is_reported() {
    let folder = Folder::new("roots");
    let url = "https://127.0.0.1:9/x";
    let reported = |roots: &Path, part: &str| {
        let mut client = Client::new(url.parse().unwrap(), 1).with_root_file(roots.to_owned());
        let error = client.get(&Stop::default()).unwrap_err();
        assert!(matches!(error.cause, FetchCause::Roots(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(part) && text.contains(&*roots.to_string_lossy()), "{text}");
    };
    reported(&folder.path("missing.pem"), "No such file");
    fs::write(folder.path("empty.pem"), "").unwrap();
    reported(&folder.path("empty.pem"), "no certificate in PEM");
}

/// The URL that a process fetches with the system's roots, for the test that has started it.
const SYSTEM_URL: &str = "FINGERPOST_TEST_SYSTEM_URL";

/// Fetches a URL with the roots of the environment in a process of its own; returns its output.
fn fetch_with_system_roots(url: &str, file: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "system_roots_are_those_of_the_environment", "--nocapture"]);
    command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", file).env(SYSTEM_URL, url);
    let output = command.output().unwrap();
    check(&output);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn system_roots_are_those_of_the_environment() {
    if let Ok(url) = std::env::var(SYSTEM_URL) {
        match Client::new(url.parse().unwrap(), 100).get(&Stop::default()) {
            Ok(fetched) => eprintln!("{fetched:?}"),
            Err(error) => eprintln!("{error}"),
        }
        return;
    }
    let folder = Folder::new("system");
    let roots = folder.certify("server", "IP:127.0.0.1", "FALSE");
    let other = folder.certify("other", "IP:127.0.0.1", "FALSE");
    write_response(&folder, "list.txt", 1, b"x");
    let server = Server::start(&folder, "server", &[]);
    let url = format!("https://127.0.0.1:{}/list.txt", server.port);
    for (file, part) in [
        (roots, "New([120])"),
        (other, "UnknownIssuer: add its issuer"),
        (folder.path("missing.pem"), "install the package ca-certificates"),
    ] {
        let output = fetch_with_system_roots(&url, &file);
        assert!(output.contains(part), "{output}");
    }
}

#[test]
fn server_without_tls_is_reported() {
    let folder = Folder::new("plain");
    let roots = folder.certify("server", "IP:127.0.0.1", "FALSE");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        // Waits until the client has closed, so that the response is not lost by a reset.
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let url = format!("https://127.0.0.1:{port}/x");
    let mut client = Client::new(url.parse().unwrap(), 1).with_root_file(roots);
    refuse(&mut client, "does the server speak TLS at this port?");
    serving.join().unwrap();
}
