//! A client that sends what it is told, and sees where a response ends.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its headers say.
    pub(crate) is_whole: bool,
}

impl Reply {
    /// Returns a header, in small letters; nothing, if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// A response whose body has not been read.
pub(crate) struct Opened {
    pub(crate) head: Reply,
    stream: BufReader<TcpStream>,
    /// Whether there is none.
    is_empty: bool,
    /// Bytes that were taken.
    taken: usize,
}

/// Sends a request, and reads the head of the response.
pub(crate) fn open(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Opened {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\n");
    headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
    stream.write_all(&[request.as_bytes(), b"\r\n", body].concat()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line();
    let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("{first}")).parse().unwrap();
    let headers = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty()));
    let headers = headers.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    });
    let head = Reply { status, headers: headers.collect(), body: Vec::new(), is_whole: false };
    Opened { head, stream, taken: 0, is_empty: method == "HEAD" || status == 304 }
}

impl Opened {
    /// Reads some bytes.
    pub(crate) fn some(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.taken += count;
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads the rest.
    pub(crate) fn rest(mut self) -> Reply {
        let mut body = Vec::new();
        let has_closed = self.stream.read_to_end(&mut body).is_ok();
        if self.is_empty {
            self.head.is_whole = has_closed && body.is_empty();
        } else if self.head.header("transfer-encoding") != "chunked" {
            let length = (self.taken + body.len()).to_string();
            self.head.is_whole = has_closed && length == self.head.header("content-length");
            self.head.body = body;
        } else if self.taken > 0 {
            // What remains does not begin with a chunk.
            self.head.is_whole = has_closed && body.ends_with(b"\r\n0\r\n\r\n");
            self.head.body = body;
        } else {
            (self.head.body, self.head.is_whole) = chunks(&body);
        }
        self.head
    }
}

/// Sends a request and reads the response.
pub(crate) fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    open(address, method, path, headers, body).rest()
}

/// Joins the chunks of a body (RFC 9112 §7.1), and says whether the last one is there.
fn chunks(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut joined = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let size = usize::from_str_radix(str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (joined, true);
        }
        let Some(chunk) = body.get(end + 2..end + 2 + size) else { break };
        joined.extend_from_slice(chunk);
        body = body.get(end + 4 + size..).unwrap_or_default();
    }
    (joined, false)
}
