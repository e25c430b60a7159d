//! XDR (RFC 4506) decoding that borrows and checks every length first.

use nfs3_types::xdr_codec::Pack;
use thiserror::Error;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message ends inside a field.
    #[error("message ends inside {field}")]
    Truncated {
        /// The field that was being read.
        field: &'static str,
    },
    /// A length field exceeds the limit of its type or of what was asked for.
    #[error("{field} claims {length} bytes, at most {limit} are allowed")]
    TooLong {
        /// The field whose length is wrong.
        field: &'static str,
        /// The length that the peer claims, in bytes or elements.
        length: u64,
        /// The largest length accepted.
        limit: u64,
    },
    /// A discriminant or enumeration has a value that the protocol does not know.
    #[error("{field} has the unknown value {value}")]
    Unknown {
        /// The field that was being read.
        field: &'static str,
        /// The value found.
        value: u32,
    },
    /// Two fields of one message contradict each other.
    #[error("{field} contradicts the rest of the message")]
    Inconsistent {
        /// The field that was being read.
        field: &'static str,
    },
    /// Bytes are left over after the last field.
    #[error("{count} bytes follow the end of the message")]
    Trailing {
        /// How many bytes are left.
        count: usize,
    },
}

/// Reads XDR items from a byte slice without copying.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts reading at the first byte of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads an unsigned 32-bit integer.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer than four bytes are left.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.fixed(field).map(u32::from_be_bytes)
    }

    /// Reads an unsigned 64-bit integer (XDR hyper).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer than eight bytes are left.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.fixed(field).map(u64::from_be_bytes)
    }

    /// Reads a boolean; only 0 and 1 are valid.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] or [`DecodeError::Unknown`].
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u32(field)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Unknown { field, value }),
        }
    }

    /// Reads `N` bytes; `N` must be a multiple of four, as XDR items are.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer than `N` bytes are left.
    pub fn fixed<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        const { assert!(N.is_multiple_of(4)) }
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated { field })?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads variable-length opaque data of at most `limit` bytes, and its padding.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] before anything is looked at, [`DecodeError::Truncated`] when the data or its
    /// padding is not all there.
    pub fn opaque(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let length = self.length(field, limit)?;
        let data = self.rest.get(..length).ok_or(DecodeError::Truncated { field })?;
        self.rest = self.rest.get(length + padding(length)..).ok_or(DecodeError::Truncated { field })?;
        Ok(data)
    }

    /// Reads the length of opaque data or of an array, at most `limit`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] or [`DecodeError::Truncated`].
    pub fn length(&mut self, field: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let length = self.u32(field)?;
        match usize::try_from(length) {
            Ok(length) if length <= limit => Ok(length),
            _ => Err(DecodeError::TooLong { field, length: length.into(), limit: limit as u64 }),
        }
    }

    /// Reads an optional item: a boolean, and the item when it is true.
    ///
    /// # Errors
    /// What the boolean or `item` reports.
    pub fn option<T>(
        &mut self,
        field: &'static str,
        item: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.bool(field)? { item(self).map(Some) } else { Ok(None) }
    }

    /// Ends the message: nothing may be left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] with the number of bytes left.
    pub const fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { count }),
        }
    }

    /// Returns the bytes not yet read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// Returns how many zero bytes follow opaque data of `length` bytes (RFC 4506 §4.10).
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Appends the XDR encoding of `item` to `buffer`.
pub fn encode(buffer: &mut Vec<u8>, item: &impl Pack) {
    item.pack(buffer).expect("writing to memory cannot fail, and every value of ours has an encoding");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_refuses_a_length_above_its_limit_before_looking_at_the_data() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff]);
        let error = reader.opaque("name", 255).unwrap_err();
        assert_eq!(error, DecodeError::TooLong { field: "name", length: 0xffff_ffff, limit: 255 });
    }

    #[test]
    fn opaque_needs_its_padding() {
        let whole = [0, 0, 0, 1, b'x', 0, 0, 0];
        assert_eq!(Reader::new(&whole).opaque("name", 9).unwrap(), b"x");
        for cut in 0..whole.len() {
            let error = Reader::new(&whole[..cut]).opaque("name", 9).unwrap_err();
            assert_eq!(error, DecodeError::Truncated { field: "name" });
        }
    }

    #[test]
    fn booleans_are_zero_or_one() {
        let mut reader = Reader::new(&[0, 0, 0, 2]);
        assert_eq!(reader.bool("eof").unwrap_err(), DecodeError::Unknown { field: "eof", value: 2 });
    }
}
