//! A server that lies about names cannot reach out of the destination.

mod common;

use std::{
    collections::HashMap,
    fs,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    thread,
};

use common::{Server, names, nfsw, stderr};

/// What honest names become on the way; of the same length, so that messages stay valid.
const LIES: [(&[u8; 8], &[u8; 8]); 3] =
    [(b"honest-1", b"../pwned"), (b"honest-2", b"/tmp/bad"), (b"honest-3", b"nul\0nul\0")];

/// Passes datagrams on and replaces names in what comes back; returns the port to talk to.
fn lying_proxy(server: SocketAddr) -> u16 {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let port = front.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut call = vec![0; 65_536];
        while let Ok((length, client)) = front.recv_from(&mut call) {
            let back = clients.entry(client).or_insert_with(|| {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                back.connect(server).unwrap();
                let (replies, front) = (Arc::clone(&back), Arc::clone(&front));
                thread::spawn(move || {
                    let mut reply = vec![0; 65_536];
                    while let Ok(length) = replies.recv(&mut reply) {
                        let reply = &mut reply[..length];
                        for (honest, lie) in LIES {
                            while let Some(at) = reply.windows(8).position(|window| window == honest) {
                                reply[at..at + 8].copy_from_slice(lie);
                            }
                        }
                        front.send_to(reply, client).unwrap();
                    }
                });
                back
            });
            back.send(&call[..length]).unwrap();
        }
    });
    port
}

#[test]
fn names_that_lead_elsewhere_are_left_out_and_reported() {
    let server = Server::start();
    fs::create_dir(server.path("tree")).unwrap();
    for name in ["honest-1", "honest-2", "honest-3", "real"] {
        fs::write(server.path("tree").join(name), name).unwrap();
    }
    let port = lying_proxy(server.address());
    let url = format!("nfs://127.0.0.1:{port}/tree?mountport={port}");
    let here = tempfile::tempdir().unwrap();
    let target = here.path().join("inside/copy");
    fs::create_dir(here.path().join("inside")).unwrap();
    let output = nfsw(["cp", "-r", "--transport", "udp", &url, target.to_str().unwrap()]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("unsafe name").count(), 3, "{text}");
    assert!(text.contains("nul\\u{0}nul\\u{0}"), "{text:?}");
    assert_eq!(names(&target), ["real"]);
    assert_eq!(names(&here.path().join("inside")), ["copy"]);
    assert_eq!(names(here.path()), ["inside"]);
    // Nothing is removed by such a name either.
    let output = nfsw(["rm", "-r", "--transport", "udp", &url]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(names(&server.path("tree")), ["honest-1", "honest-2", "honest-3"]);
}
