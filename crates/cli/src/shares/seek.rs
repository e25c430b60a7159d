//! Shares that are looked for by the number of a code, or by the key of one that was used here.

use std::{fmt::Write as _, io, net::SocketAddr, time::Duration};

use nfs_share::{Code, Discovery, Found, Greeting, Interfaces, NotFound};

use crate::text::{cut, escape};

/// How long is looked. A query that is lost is sent again after a second.
const TIME: Duration = Duration::from_secs(3);

/// Shares that a message names, and characters of each name.
const MOST_NAMED: usize = 4;
const LONGEST_NAME: usize = 24;

/// What always leads to a share.
const TYPE_IT: &str = "type the address that nfsw share has printed";

/// Returns where the share is that is meant. A code is shown to one share only, so there must be one that announces its number.
///
/// # Errors
/// There is none, or several are; in words for the user, who has typed the code as it is given here.
pub(super) async fn addresses(greeting: Greeting, typed: String) -> io::Result<Vec<SocketAddr>> {
    let failed = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
    let form = format!("{typed}@HOST:PORT:/");
    let discovery = Discovery::start(&Interfaces::Nearby)
        .map_err(|error| failed(format!("no share can be looked for: {error}; {TYPE_IT}: {form}")))?;
    let looked = format!("looked for {} s on {}", TIME.as_secs(), discovery.interfaces().join(", "));
    match greeting {
        Greeting::Code(code, _) => match discovery.with_code(code.number(), TIME).await {
            Ok(found) => Ok(found.addresses),
            Err(NotFound::Several(several)) => Err(failed(which(&code, &typed, &several))),
            Err(NotFound::Nobody(others)) => {
                let others = match others.len() {
                    0 => String::new(),
                    1 => "; one share announces other codes (nfsw find)".to_owned(),
                    count => format!("; {count} shares announce other codes (nfsw find)"),
                };
                let number = code.number();
                Err(failed(format!(
                    "no share around here announces a code {number} that is not used yet ({looked}{others}); {TYPE_IT}: {form}"
                )))
            }
            Err(other) => Err(failed(format!("{other}; {TYPE_IT}: {form}"))),
        },
        Greeting::Known(membership, _) => {
            let found = discovery.with_key(membership.sharer.into(), TIME).await;
            if found.is_empty() {
                return Err(failed(format!(
                    "the share is not found around here ({looked}); {TYPE_IT}: {form}"
                )));
            }
            Ok(found)
        }
    }
}

/// Says what to type where several shares may be meant.
fn which(code: &Code, typed: &str, several: &[Found]) -> String {
    let number = code.number();
    let mut text = format!("{} shares around here announce a code {number}; say which:", several.len());
    for Found { notice, addresses, .. } in several.iter().take(MOST_NAMED) {
        let (name, key) = (cut(&notice.name, LONGEST_NAME), notice.key.short());
        let address = addresses.first().map_or_else(String::new, ToString::to_string);
        let _ = write!(text, " {typed}@{address}:/ ({}, key {key})", escape(name.as_bytes()));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use nfs_share::{KeyPrefix, Notice};

    use super::*;

    #[test]
    fn several_shares_are_told_with_what_to_type_and_obey_no_terminal() {
        let found = |name: &str, last: u8| Found {
            notice: Notice {
                name: name.to_owned(),
                key: KeyPrefix([last; 8]),
                codes: vec![7],
                since: UNIX_EPOCH,
            },
            addresses: vec![([192, 168, 1, last], 7049).into(), ([10, 0, 0, last], 7049).into()],
        };
        let code = "7-velvet-cactus".parse().unwrap();
        let several = [found("anna@laptop", 5), found("\u{1b}[2J", 6)];
        assert_eq!(
            which(&code, "7-velvet-cactus", &several),
            "2 shares around here announce a code 7; say which: \
             7-velvet-cactus@192.168.1.5:7049:/ (anna@laptop, key 0505) \
             7-velvet-cactus@192.168.1.6:7049:/ (\\u{1b}[2J, key 0606)"
        );
        // A code that was not typed stays so, and a flood of shares is no flood of text.
        let flood: Vec<Found> = (0..200).map(|last| found(&"x".repeat(64), last)).collect();
        let text = which(&code, "", &flood);
        assert!(
            !text.contains("velvet") && text.contains(" @192.168.1.0:7049:/ (") && text.len() < 450,
            "{text}"
        );
    }
}
