//! Secrets of members, and what is derived from them.

use std::fmt;

use zeroize::Zeroizing;

/// What makes somebody a member: 128 bits, shown as 32 hexadecimal digits.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

const SECRET_BYTES: usize = 16;

/// Bytes of a ticket that are drawn.
const NONCE_BYTES: usize = 16;

/// Derives the key of a member's tickets.
const CONTEXT: &str = "nfs-web 2026-11 key of the tickets of a member";

/// What a member is recognised by: its secret, and tickets that were made from it.
///
/// Nothing is kept of a ticket, so that their number is not limited, and a server that was started again with the same secret takes them.
pub(crate) struct Key {
    secret: Secret,
    tickets: Zeroizing<[u8; 32]>,
}

impl Key {
    /// Whether it is made from this secret, which is no visitor's.
    pub(crate) fn is_of(&self, secret: &Secret) -> bool {
        self.secret.0 == secret.0
    }
}

impl Secret {
    /// Draws one.
    pub fn draw() -> Self {
        Self::from_bytes(crate::random())
    }

    /// Makes one of random numbers, or of what was derived from a key.
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads what people type, or a script has read in the address.
    fn parse(text: &[u8]) -> Option<Self> {
        let digits: Zeroizing<Vec<u8>> =
            Zeroizing::new(text.iter().copied().filter(|byte| !b" -\t\r\n".contains(byte)).collect());
        unhex(&digits).map(Self::from_bytes)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&Zeroizing::new(hex::encode(&self.0[..])))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl Key {
    pub(crate) fn new(secret: &Secret) -> Self {
        let tickets = Zeroizing::new(blake3::derive_key(CONTEXT, &secret.0[..]));
        Self { secret: secret.clone(), tickets }
    }

    /// Whether somebody knows the secret; the time that this takes tells nothing about it.
    pub(crate) fn is_known_to(&self, text: &[u8]) -> bool {
        let Some(said) = Secret::parse(text) else { return false };
        // Hashes are compared in constant time.
        blake3::hash(&said.0[..]) == blake3::hash(&self.secret.0[..])
    }

    /// Makes a ticket, by which a browser is known afterwards.
    pub(crate) fn ticket(&self) -> String {
        let nonce: [u8; NONCE_BYTES] = crate::random();
        format!("{}{}", hex::encode(nonce), self.seal(nonce))
    }

    /// Whether a ticket is one of this member's.
    pub(crate) fn has_made(&self, ticket: &str) -> bool {
        let Some((nonce, seal)) = ticket.split_at_checked(2 * NONCE_BYTES) else { return false };
        match (unhex(nonce.as_bytes()), blake3::Hash::from_hex(seal)) {
            (Some(nonce), Ok(seal)) => self.seal(nonce) == seal,
            _ => false,
        }
    }

    fn seal(&self, nonce: [u8; NONCE_BYTES]) -> blake3::Hash {
        blake3::keyed_hash(&self.tickets, &nonce)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

fn unhex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_as_it_is_shown_and_typed() {
        let secret = Secret::draw();
        let (key, shown) = (Key::new(&secret), secret.to_string());
        assert_eq!(shown.len(), 32);
        let (head, tail) = shown.split_at(8);
        for typed in [shown.clone(), shown.to_uppercase(), format!(" {head}-{tail}\n")] {
            assert!(key.is_known_to(typed.as_bytes()), "{typed}");
        }
        let other = Secret::draw().to_string();
        for wrong in
            ["", "0", head, &other, &format!("{shown}0"), &format!("{shown}00"), &format!("+{}", &shown[1..])]
        {
            assert!(!key.is_known_to(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{secret:?} {key:?}"), "Secret Key");
    }

    #[test]
    fn tickets_are_those_of_one_secret() {
        let secret = Secret::draw();
        let key = Key::new(&secret);
        let ticket = key.ticket();
        assert_ne!(ticket, key.ticket());
        assert!(key.has_made(&ticket) && Key::new(&secret).has_made(&ticket));
        assert!(!Key::new(&Secret::draw()).has_made(&ticket));
        let mut forged = ticket.clone().into_bytes();
        for at in 0..forged.len() {
            let was = forged[at];
            forged[at] = if was == b'0' { b'1' } else { b'0' };
            assert!(!key.has_made(str::from_utf8(&forged).unwrap()), "digit {at}");
            forged[at] = was;
        }
        for wrong in ["", &ticket[1..], &ticket[..95], "ä", &secret.to_string()] {
            assert!(!key.has_made(wrong), "{wrong}");
        }
    }
}
