//! `nfsw share --web`: the same files for those who have a browser and no nfsw.

use std::{fmt::Write as _, io::IsTerminal as _, net::SocketAddr, time::Instant};

use nfs_share::{Identity, MemberId};
use nfs_web::{Front, Secret, Used};
use nfs_wireless_server::Directory;
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use zeroize::Zeroizing;

use crate::{
    error::io_text,
    exit::{Exit, Failure},
};

/// What secrets of members are derived for.
const CONTEXT: &str = "nfsw share 2026-11 secret of a member for browsers";

/// Black on white, whatever the terminal's colours are, and back.
const BLACK_ON_WHITE: &str = "\x1b[38;5;16;48;5;231m";
const PLAIN: &str = "\x1b[0m";

/// What is said of addresses for browsers.
const WARNING: &str = "  not encrypted: whoever listens on this network can read what a browser loads\n";

/// The page, and where it is reached.
#[derive(Debug)]
pub(super) struct Web {
    front: Front,
    identity: Zeroizing<[u8; 64]>,
    addresses: Vec<SocketAddr>,
}

impl Web {
    /// Listens; `reachable` tells at which addresses others may reach one.
    pub(super) async fn bind(
        listen: SocketAddr,
        title: &str,
        identity: &Identity,
        reachable: impl Fn(SocketAddr) -> Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let front = Front::bind(listen, title).await.map_err(|error| {
            let text =
                format!("cannot listen on {listen}: {} (--web=ADDR:PORT takes another)", io_text(&error));
            Failure::with(Exit::LocalIo, text)
        })?;
        let addresses = reachable(front.local_addr());
        Ok(Self { front, identity: identity.to_bytes(), addresses })
    }

    /// Lets a member's browser in, for as long as the member may read.
    pub(super) fn admit(
        &self,
        id: MemberId,
        files: Directory,
        term: impl Fn() -> Option<Instant> + Send + Sync + 'static,
    ) {
        self.front.admit(&self.secret(id), files, term);
    }

    /// Returns what a member's browser has had.
    pub(super) fn used(&self, id: MemberId) -> Used {
        self.front.used(&self.secret(id))
    }

    /// Says what to open in a browser: the addresses, and the first one for cameras.
    pub(super) fn invitation(&self, id: MemberId) -> String {
        let secret = self.secret(id);
        let addresses: Vec<_> =
            self.addresses.iter().map(|address| format!("http://{address}/#{secret}")).collect();
        let mut said = String::new();
        for address in &addresses {
            let _ = writeln!(said, "  in a browser: {address}");
        }
        said.push_str(WARNING);
        if let Some(address) = addresses.first().filter(|_| std::io::stdout().is_terminal()) {
            said.push_str(&code(address));
        }
        said
    }

    pub(super) async fn end(self) {
        self.front.end().await;
    }

    /// Derived from what is kept of the share, so that the same command shows the same address after it was killed.
    fn secret(&self, id: MemberId) -> Secret {
        let material = Zeroizing::new([&self.identity[..], &id.0].concat());
        let derived = Zeroizing::new(blake3::derive_key(CONTEXT, &material));
        let (secret, _) = derived.split_first_chunk().expect("32 bytes have 16");
        Secret::from_bytes(*secret)
    }
}

/// Draws an address for cameras; nothing, if it is too long.
fn code(address: &str) -> String {
    let Ok(code) = QrCode::with_error_correction_level(address, EcLevel::L) else { return String::new() };
    // The parts that are dark are drawn.
    let drawn = code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build();
    drawn.lines().map(|line| format!("{BLACK_ON_WHITE}{line}{PLAIN}\n")).collect()
}
