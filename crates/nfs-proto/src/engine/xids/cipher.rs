//! Speck32/64, a block cipher of 32 bits (Beaulieu et al. 2013, "The SIMON and SPECK Families of Lightweight Block Ciphers", §4).
//!
//! It permutes attempt numbers: every XID stands for one of them, and takes no table to find.

/// Rounds of the variant with blocks of 32 bits and a key of 64 (table 4.1).
const ROUNDS: usize = 22;

/// The round keys of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cipher {
    keys: [u16; ROUNDS],
}

impl Cipher {
    /// Expands a key, whose lowest 16 bits are the first round's (§4.2).
    pub(super) fn new(key: u64) -> Self {
        let mut left = [(key >> 16) as u16, (key >> 32) as u16, (key >> 48) as u16];
        let mut right = key as u16;
        let mut keys = [0; ROUNDS];
        for (round, slot) in (0_u16..).zip(&mut keys) {
            *slot = right;
            let word = &mut left[usize::from(round) % 3];
            (*word, right) = forward((*word, right), round);
        }
        Self { keys }
    }

    pub(super) fn encipher(&self, number: u32) -> u32 {
        join(self.keys.iter().fold(split(number), |words, &key| forward(words, key)))
    }

    pub(super) fn decipher(&self, number: u32) -> u32 {
        join(self.keys.iter().rev().fold(split(number), |words, &key| backward(words, key)))
    }
}

const fn forward((x, y): (u16, u16), key: u16) -> (u16, u16) {
    let x = x.rotate_right(7).wrapping_add(y) ^ key;
    (x, y.rotate_left(2) ^ x)
}

const fn backward((x, y): (u16, u16), key: u16) -> (u16, u16) {
    let y = (y ^ x).rotate_right(2);
    ((x ^ key).wrapping_sub(y).rotate_left(7), y)
}

const fn split(number: u32) -> (u16, u16) {
    ((number >> 16) as u16, number as u16)
}

fn join((x, y): (u16, u16)) -> u32 {
    u32::from(x) << 16 | u32::from(y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vector_comes_out() {
        // Beaulieu et al. 2013, appendix C.
        let cipher = Cipher::new(0x1918_1110_0908_0100);
        assert_eq!(cipher.encipher(0x6574_694c), 0xa868_42f2);
        assert_eq!(cipher.decipher(0xa868_42f2), 0x6574_694c);
    }

    #[test]
    fn deciphering_undoes_enciphering() {
        let cipher = Cipher::new(42);
        assert!((0..100_000).all(|number| cipher.decipher(cipher.encipher(number)) == number));
    }
}
