//! The feed against a server with given responses.

use std::thread::JoinHandle;

use jiff::SignedDuration;

use super::*;
use crate::feed::scripted_server;

const EMPTY: &str = r#"{"deleted":null,"new":null}"#;

/// Responds to each request with a status and a body; returns the port and, in the end, the heads
/// of the requests.
fn serve(responses: Vec<(u16, String)>) -> (u16, JoinHandle<Vec<String>>) {
    let response = |(status, body): (u16, String)| {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    scripted_server::serve(responses.into_iter().map(response).collect())
}

fn feed_of(port: u16) -> CrowdsecFeed {
    let url = format!("http://127.0.0.1:{port}").parse().unwrap();
    CrowdsecFeed::new(url, "the-key", DEFAULT_INTERVAL).unwrap()
}

fn poll(feed: &mut CrowdsecFeed) -> Result<Option<String>, String> {
    let text = feed.poll(&Stop::default())?;
    Ok(text.map(|text| String::from_utf8(text).unwrap()))
}

/// Returns the JSON of a decision.
pub(super) fn decision(id: i64, kind: &str, scope: &str, value: &str, duration: &str) -> String {
    format!(
        r#"{{"duration":"{duration}","id":{id},"origin":"cscli","scenario":"manual 'ban' from 'x'",
        "scope":"{scope}","type":"{kind}","value":"{value}"}}"#
    )
}

/// Returns the JSON of a ban.
pub(super) fn ban(id: i64, value: &str, duration: &str) -> String {
    let scope = if value.contains('/') { "Range" } else { "Ip" };
    decision(id, "ban", scope, value, duration)
}

/// Returns the JSON of a pull.
pub(super) fn body(new: &[String], deleted: &[String]) -> String {
    format!(r#"{{"deleted":[{}],"new":[{}]}}"#, deleted.join(","), new.join(","))
}

/// Returns the values of the parameter `startup` of requests.
fn startups(requests: &[String]) -> Vec<bool> {
    let is_full = |request: &String| {
        let path = request.split(' ').nth(1).unwrap();
        let start = "/v1/decisions/stream?startup=";
        path.strip_prefix(start).unwrap().split('&').next().unwrap().parse().unwrap()
    };
    requests.iter().map(is_full).collect()
}

/// Returns the prefixes and ends of a text.
pub(super) fn lines(text: &str) -> Vec<(String, Timestamp)> {
    let line = |line: &str| {
        let (prefix, end) = line.split_once(" expires=").unwrap();
        (prefix.to_owned(), end.parse().unwrap())
    };
    text.lines().map(line).collect()
}

#[test]
fn list_follows_new_and_deleted_decisions() {
    let first = [
        ban(1, "203.0.113.0/24", "1h"),
        ban(2, "2001:db8::0:1", "2h0m0.5s"),
        ban(3, "198.51.100.7", "10h"),
        ban(4, "198.51.100.7", "4h"),
        ban(5, "198.51.100.77/28", "30m"),
        ban(6, "2001:DB8:1::/48", "30m"),
        ban(7, "192.0.2.1", "-1ms"),
        ban(8, "198.51.100.7/32", "1h"),
    ];
    let (port, server) = serve(vec![
        (200, body(&first, &[ban(99, "203.0.113.0/24", "-1h")])),
        (200, EMPTY.to_owned()),
        (200, body(&[], &[ban(3, "198.51.100.7", "-12.2ms"), ban(77, "203.0.113.0/24", "-1s")])),
        (200, body(&[], &[ban(3, "198.51.100.7", "-2.2s")])),
        (200, body(&[ban(9, "192.0.2.1", "1s")], &[ban(9, "192.0.2.1", "-1ms")])),
        (200, body(&[], &[ban(4, "198.51.100.7", "-1s"), ban(8, "198.51.100.7/32", "-1s")])),
    ]);
    let mut feed = feed_of(port);
    let begin = Timestamp::now();
    let text = poll(&mut feed).unwrap().unwrap();
    let found = lines(&text);
    let prefixes: Vec<&str> = found.iter().map(|(prefix, _)| &**prefix).collect();
    let expected =
        ["198.51.100.7", "198.51.100.64/28", "203.0.113.0/24", "2001:db8::1", "2001:db8:1::/48"];
    assert_eq!(prefixes, expected);
    let left = |index: usize| found[index].1.duration_since(begin);
    for (index, hours) in [(0, 10), (2, 1)] {
        let late = left(index) - SignedDuration::from_hours(hours);
        assert!(late >= SignedDuration::ZERO && late < SignedDuration::from_secs(30), "{late:?}");
        assert_eq!(found[index].1.subsec_nanosecond(), 0);
    }
    assert!(text.lines().next().unwrap().ends_with('Z'));
    assert_eq!(poll(&mut feed), Ok(None));
    // The longer one ends, and one that is not known; the shorter one stays.
    let text = poll(&mut feed).unwrap().unwrap();
    let (prefix, end) = lines(&text).swap_remove(0);
    assert_eq!(prefix, "198.51.100.7");
    assert!(end.duration_since(begin) < SignedDuration::from_hours(5));
    assert_eq!(lines(&text).len(), expected.len());
    // Pulls overlap by 2 s.
    assert_eq!(poll(&mut feed), Ok(None));
    // It has ended while the response was written.
    assert_eq!(poll(&mut feed), Ok(None));
    let text = poll(&mut feed).unwrap().unwrap();
    assert!(!text.contains("198.51.100.7 "));
    let requests = server.join().unwrap();
    assert_eq!(startups(&requests), [true, false, false, false, false, false]);
    let line =
        "GET /v1/decisions/stream?startup=true&scopes=ip,range,country,as&dedup=false HTTP/1.1";
    assert_eq!(requests[0].lines().next(), Some(line));
    let head = requests[0].to_lowercase();
    assert!(
        head.contains("x-api-key: the-key") && head.contains("user-agent: fingerpost/"),
        "{head}"
    );
}

#[test]
fn feed_after_an_error_pulls_the_whole_set() {
    let whole = || body(&[ban(1, "192.0.2.1", "1h")], &[]);
    let damaged = whole()[..60].to_owned();
    let (port, server) = serve(vec![
        (500, String::new()),
        (200, whole()),
        (200, EMPTY.to_owned()),
        (200, damaged),
        (200, whole()),
        (200, body(&[ban(2, "192.0.2.2", "1h")], &[])),
        (403, r#"{"message":"access forbidden"}"#.to_owned()),
        (200, whole()),
        (200, EMPTY.to_owned()),
    ]);
    let mut feed = feed_of(port);
    let error = poll(&mut feed).unwrap_err();
    assert_eq!(error, "/v1/decisions/stream: the server responds 500 Internal Server Error");
    let text = poll(&mut feed).unwrap().unwrap();
    assert_eq!(poll(&mut feed), Ok(None));
    let error = poll(&mut feed).unwrap_err();
    assert!(error.contains("not a complete decision stream: EOF while parsing"), "{error}");
    // The same set is the same text, though its ends are computed again.
    assert_eq!(poll(&mut feed), Ok(None));
    assert_eq!(lines(&poll(&mut feed).unwrap().unwrap()).len(), 2);
    let error = poll(&mut feed).unwrap_err();
    assert!(error.contains("403 Forbidden: check the key in x-api-key"), "{error}");
    assert!(error.contains("file of --crowdsec-key"), "{error}");
    // A decision that is gone meanwhile is gone, though none reports its end.
    assert_eq!(poll(&mut feed).unwrap(), Some(text));
    assert_eq!(poll(&mut feed), Ok(None));
    let full = [true, true, false, false, true, false, false, true, false];
    assert_eq!(startups(&server.join().unwrap()), full);
}

#[test]
fn whole_set_is_pulled_again_after_an_interval() {
    let whole = |id| body(&[ban(id, "192.0.2.1", "1h")], &[]);
    let (port, server) = serve(vec![(200, whole(1)), (200, whole(1)), (200, whole(2))]);
    let mut feed = feed_of(port);
    feed.full_interval = Duration::ZERO;
    assert!(poll(&mut feed).unwrap().is_some());
    assert_eq!(poll(&mut feed), Ok(None));
    feed.full_interval = Duration::MAX;
    assert!(poll(&mut feed).is_ok());
    assert_eq!(feed.decisions.render(Timestamp::now()).iter().filter(|&&b| b == b'\n').count(), 1);
    assert_eq!(startups(&server.join().unwrap()), [true, true, false]);
}

#[test]
fn text_that_was_not_written_is_returned_again() {
    let whole = body(&[ban(1, "192.0.2.1", "1h")], &[]);
    let (port, server) =
        serve(vec![(200, whole), (200, EMPTY.to_owned()), (200, EMPTY.to_owned())]);
    let mut feed = feed_of(port);
    let text = poll(&mut feed).unwrap();
    feed.written(Err(()));
    assert_eq!(poll(&mut feed).unwrap(), text);
    feed.written(Ok(()));
    assert_eq!(poll(&mut feed), Ok(None));
    server.join().unwrap();
}

#[test]
fn empty_set_is_an_empty_text() {
    let (port, server) = serve(vec![(200, EMPTY.to_owned())]);
    assert_eq!(poll(&mut feed_of(port)), Ok(Some(String::new())));
    server.join().unwrap();
}

#[test]
fn url_with_a_path_has_the_stream_below_it() {
    let path = |url: &str| {
        CrowdsecFeed::new(url.parse().unwrap(), "k", DEFAULT_INTERVAL).map(|feed| feed.path)
    };
    assert_eq!(path("http://host:8080"), Ok("/v1/decisions/stream".to_owned()));
    assert_eq!(path("http://host/crowdsec/"), Ok("/crowdsec/v1/decisions/stream".to_owned()));
    assert!(path("http://host/?a=b").unwrap_err().contains("remove the part from \"?\""));
    let url: Url = "http://host".parse().unwrap();
    let error = CrowdsecFeed::new(url.clone(), "a\nb", DEFAULT_INTERVAL).unwrap_err();
    assert!(error.contains("X-Api-Key") && !error.contains("a\nb"), "{error}");
    assert!(CrowdsecFeed::new(url, "k", Duration::ZERO).unwrap_err().contains("at least 1 s"));
}

#[test]
fn key_file_has_one_word() {
    let name = format!("fingerpost-crowdsec-key-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let read = |text: &str| {
        fs::write(&file, text).unwrap();
        read_key(&file)
    };
    assert_eq!(read("  abc/+1\r\n"), Ok("abc/+1".to_owned()));
    for (text, part) in [
        ("", "there is no key of CrowdSec in the file"),
        (" \n", "there is no key of CrowdSec in the file"),
        ("Api key for 'x':\n\n  abc\n", "more than the key of CrowdSec"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part) && error.contains(&file.display().to_string()), "{error}");
    }
    fs::remove_file(&file).unwrap();
    let error = read_key(&file).unwrap_err();
    assert!(error.starts_with("reading CrowdSec's key from "), "{error}");
}
