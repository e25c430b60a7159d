//! Patterns in URLs, where `%` escapes what a backslash escapes in the pattern.

use nfs_wireless_client::url::{self, UrlError};

use super::{SPECIAL, is_pattern};

/// Writes a pattern as it stands in a URL, where `%` escapes what a backslash escapes in the pattern.
pub(super) fn encode(pattern: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(&escaped)) if SPECIAL.contains(&escaped) => {
                url::encode_byte(escaped, SPECIAL, &mut out);
                bytes.next();
            }
            _ => url::encode_byte(byte, b"%?", &mut out),
        }
    }
    out
}

/// Reads a path with unescaped `*` or `[`. What is escaped by `%` is no part of a pattern.
pub(super) fn decode(path: &[u8]) -> Result<Vec<u8>, UrlError> {
    let components = path.split(|&byte| byte == b'/').map(|component| {
        let decoded = url::decode(component)?;
        // Only in a component that is a pattern, or looks like one, does a backslash escape anything.
        if !is_pattern(&decoded) {
            return Ok(decoded);
        }
        let mut out = Vec::with_capacity(component.len());
        let mut rest = component;
        while let [byte, tail @ ..] = rest {
            match (byte, tail) {
                (b'%', [high, low, tail @ ..]) => {
                    let decoded = url::decode(&[b'%', *high, *low])?;
                    if SPECIAL.contains(&decoded[0]) {
                        out.push(b'\\');
                    }
                    out.extend_from_slice(&decoded);
                    rest = tail;
                }
                _ => {
                    out.push(*byte);
                    rest = tail;
                }
            }
        }
        Ok(out)
    });
    Ok(components.collect::<Result<Vec<_>, UrlError>>()?.join(&b'/'))
}
