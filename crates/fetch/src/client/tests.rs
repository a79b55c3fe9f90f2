//! The client against a server that sends given bytes: conditions, headers, limits and errors.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use threads::{Rights, Task};

use super::*;

const MAX_BYTES: usize = 1000;

/// Sends each response once, and returns the request headers.
fn serve(responses: Vec<Vec<u8>>) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let mut requests = Vec::new();
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            requests.push(head.join("\n"));
            let _ = stream.write_all(&response);
        }
        requests
    });
    (port, serving)
}

fn client(port: u16) -> Client {
    Client::new(format!("http://127.0.0.1:{port}/all.txt").parse().unwrap(), MAX_BYTES)
}

fn get(client: &mut Client) -> Result<Fetched, FetchError> {
    client.get(&Stop::default())
}

fn ok(headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

/// Returns the error of a response, as text.
fn error_of(response: &[u8]) -> String {
    let (port, serving) = serve(vec![response.to_vec()]);
    let error = get(&mut client(port)).unwrap_err().to_string();
    serving.join().unwrap();
    let url = format!("http://127.0.0.1:{port}/all.txt: ");
    error.strip_prefix(&url).unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn request_is_conditional_after_a_response_until_it_is_reset() {
    let not_modified = b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec();
    let responses = vec![ok("ETag: \"a\"\r\n", "first"), not_modified, ok("", "first")];
    let (port, serving) = serve(responses);
    let mut client = client(port);
    assert_eq!(get(&mut client).unwrap(), Fetched::New(b"first".to_vec()));
    assert_eq!(client.validators().etag.as_deref(), Some("\"a\""));
    assert_eq!(get(&mut client).unwrap(), Fetched::NotModified);
    client.reset();
    assert_eq!(get(&mut client).unwrap(), Fetched::New(b"first".to_vec()));
    assert_eq!(*client.validators(), Validators::default());
    let requests = serving.join().unwrap();
    assert!(requests[0].starts_with("GET /all.txt HTTP/1.1\n"), "{}", requests[0]);
    for line in [&*format!("host: 127.0.0.1:{port}"), "accept-encoding: identity"] {
        assert!(requests[0].contains(line), "{}", requests[0]);
    }
    let is_conditional: Vec<_> =
        requests.iter().map(|request| request.contains("if-none-match: \"a\"")).collect();
    assert_eq!(is_conditional, [false, true, false]);
}

#[test]
fn modification_time_is_sent_only_if_two_versions_cannot_share_it() {
    let dated = |second: &str| {
        let time = "Sun, 22 Nov 2026 12:00";
        let headers = format!("Date: {time}:05 GMT\r\nLast-Modified: {time}:{second} GMT\r\n");
        ok(&headers, "x")
    };
    let (port, serving) = serve(vec![dated("04"), dated("03"), dated("03")]);
    let mut client = client(port);
    (0..3).for_each(|_| assert_eq!(get(&mut client).unwrap(), Fetched::New(b"x".to_vec())));
    let requests = serving.join().unwrap();
    let by_time = |i: usize| requests[i].contains("if-modified-since: Sun, 22 Nov 2026 12:00:03");
    assert!(!requests[1].contains("if-modified-since") && by_time(2), "{requests:?}");
    // The server is closed.
    let error = get(&mut client).unwrap_err();
    assert!(error.to_string().contains("connecting to the server: Connection refused"), "{error}");
}

#[test]
fn stored_validators_make_the_first_request_conditional() {
    let (port, serving) = serve(vec![b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()]);
    let mut client = client(port);
    client.set_validators(Validators { etag: Some("W/\"7\"".to_owned()), last_modified: None });
    assert_eq!(get(&mut client).unwrap(), Fetched::NotModified);
    assert!(serving.join().unwrap()[0].contains("if-none-match: W/\"7\""));
}

#[test]
fn failed_request_leaves_validators_unchanged() {
    let (port, serving) =
        serve(vec![b"HTTP/1.1 200 OK\r\nETag: \"b\"\r\nContent-Length: 50\r\n\r\nfirst".to_vec()]);
    let mut client = client(port);
    let stored = Validators { etag: Some("\"a\"".to_owned()), last_modified: None };
    client.set_validators(stored.clone());
    get(&mut client).unwrap_err();
    assert_eq!(*client.validators(), stored);
    serving.join().unwrap();
}

#[test]
fn other_path_is_requested_without_a_condition() {
    let not_modified = b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec();
    let (port, serving) = serve(vec![ok("ETag: \"b\"\r\n", "new"), not_modified]);
    let mut client = client(port);
    let stored = Validators { etag: Some("\"a\"".to_owned()), last_modified: None };
    client.set_validators(stored.clone());
    let stop = Stop::default();
    assert_eq!(client.get_path("/v1/stream?startup=true", &stop).unwrap(), b"new");
    assert_eq!(*client.validators(), stored);
    let error = client.get_path("/v1/stream", &stop).unwrap_err().to_string();
    assert!(error.ends_with("/v1/stream: the server responds 304 Not Modified"), "{error}");
    let error = client.get_path("stream", &stop).unwrap_err().to_string();
    assert!(error.contains("\"stream\" is not a valid path"), "{error}");
    let requests = serving.join().unwrap();
    assert!(requests[0].starts_with("GET /v1/stream?startup=true "), "{}", requests[0]);
    assert!(requests.iter().all(|request| !request.contains("if-none-match")));
}

#[test]
fn incomplete_body_is_refused() {
    let error = error_of(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nfirst");
    assert!(error.contains("end of file before message length reached"), "{error}");
    let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    let error = error_of(chunk);
    assert!(error.contains("error reading a body"), "{error}");
}

#[test]
fn body_above_its_limit_is_refused() {
    let body = "x".repeat(MAX_BYTES);
    let (port, serving) = serve(vec![ok("", &body)]);
    assert_eq!(get(&mut client(port)).unwrap(), Fetched::New(body.clone().into_bytes()));
    serving.join().unwrap();
    let refused = format!("the body is larger than {MAX_BYTES} bytes");
    let stated = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BYTES + 1);
    assert_eq!(error_of(stated.as_bytes()), refused);
    // Without a length, the body ends with the connection.
    assert_eq!(error_of(format!("HTTP/1.1 200 OK\r\n\r\n{body}y").as_bytes()), refused);
}

#[test]
fn response_other_than_content_is_refused() {
    let redirect = error_of(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(redirect, "the server responds 302 Found: set the URL that it redirects to");
    let partial = error_of(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(partial, "the server responds 206 Partial Content");
    let unasked = error_of(b"HTTP/1.1 304 Not Modified\r\n\r\n");
    assert_eq!(unasked, "the server responds 304 Not Modified");
    let phrase = error_of(b"HTTP/1.1 500 Your key\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(phrase, "the server responds 500 Internal Server Error");
    assert!(error_of(&ok("Content-Encoding: gzip\r\n", "x")).contains("compressed"));
    error_of(b"nonsense\r\n\r\n");
}

#[test]
fn key_is_sent_and_appears_in_no_output() {
    let unauthorized = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec();
    let (port, serving) = serve(vec![ok("", "x"), unauthorized]);
    let mut client = client(port)
        .with_header("User-Agent", "agent/1")
        .and_then(|client| client.with_header("X-Api-Key", "s3cret"))
        .unwrap();
    get(&mut client).unwrap();
    let error = get(&mut client).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("401 Unauthorized: check the key in x-api-key"), "{text}");
    let request = &serving.join().unwrap()[0];
    assert!(request.contains("x-api-key: s3cret"), "{request}");
    assert!(request.contains("user-agent: agent/1") && !request.contains("fingerpost"));
    for output in [text, format!("{error:?}"), format!("{client:?} {client:#?}")] {
        assert!(!output.contains("s3cret"), "{output}");
    }
}

#[test]
fn invalid_header_is_refused_without_its_value() {
    let with = |name: &str, value: &str| client(1).with_header(name, value).unwrap_err();
    assert_eq!(with("X Key", "s3cret"), HeaderError::Name("X Key".to_owned()));
    assert_eq!(with("host", "s3cret"), HeaderError::Reserved("host".to_owned()));
    for value in ["s3cret\n", "s3crét", "", " "] {
        let error = with("X-Api-Key", value);
        assert_eq!(error, HeaderError::Value("X-Api-Key".to_owned()), "{value:?}");
        assert!(!error.to_string().contains("s3cr"));
    }
}

#[test]
fn silent_server_ends_the_request_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = client(port).with_timeout(Duration::from_millis(250));
    let error = get(&mut client).unwrap_err().to_string();
    assert!(error.ends_with(": no complete response within 0.25 s"), "{error}");
}

#[test]
fn stop_interrupts_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = Task::start("fetch", Rights::None, move |stop| client(port).get(stop)).unwrap();
    // The request has arrived, and gets no response.
    let (_stream, _) = listener.accept().unwrap();
    let begin = Instant::now();
    let error = task.stop().unwrap().unwrap_err();
    assert!(matches!(error.cause, FetchCause::Interrupted), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}
