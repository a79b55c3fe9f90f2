//! A web server with given responses, for the tests of feeds.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::{JoinHandle, spawn};

/// Answers each request with the next response; returns the port and, in the end, the heads of the requests.
pub(super) fn serve<R>(responses: Vec<R>) -> (u16, JoinHandle<Vec<String>>)
where
    R: AsRef<[u8]> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = spawn(move || {
        let respond = |response: R| {
            let (mut client, _) = listener.accept().unwrap();
            let lines = BufReader::new(client.try_clone().unwrap()).lines();
            let head: Vec<_> =
                lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            client.write_all(response.as_ref()).unwrap();
            head.join("\n")
        };
        responses.into_iter().map(respond).collect()
    });
    (port, server)
}
