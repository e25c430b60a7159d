//! Codes such as `7-velvet-cactus`, which people read to each other.

use std::{fmt, str::FromStr};

use bip39::Language;
use thiserror::Error;

/// A number, which says which code of a sharer is meant, and two words, which are the secret: 22 bits, of which an attacker
/// may guess three times.
///
/// ```
/// use nfs_share::Code;
///
/// let code: Code = "7-Velvet-cactus".parse()?;
/// assert_eq!(code.to_string(), "7-velvet-cactus");
/// # Ok::<(), nfs_share::CodeError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    number: u16,
    words: [u16; WORDS],
}

/// Words of a code.
const WORDS: usize = 2;

/// Why a text is no code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodeError {
    /// It has another shape.
    #[error("a code is a number and two words, such as 7-velvet-cactus")]
    Shape,
    /// A word that is in no code; perhaps another one was meant.
    #[error("no code has the word {0:?}{1}")]
    Word(String, String),
}

impl Code {
    /// Draws a code with this number.
    pub(crate) fn draw(number: u16) -> Self {
        let drawn = u32::from_le_bytes(crate::random());
        // 2,048 words: no remainder.
        let words = [drawn, drawn >> 11].map(|bits| (bits % 2048) as u16);
        Self { number, words }
    }

    /// Returns the number that says which code of a sharer is meant; it is no secret.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Whether a text has the shape of a code: a number, and two words of lower or upper case letters.
    pub fn is_like(text: &str) -> bool {
        let mut parts = text.split('-');
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_word = |part: &str| part.len() >= 3 && part.bytes().all(|byte| byte.is_ascii_alphabetic());
        parts.next().is_some_and(is_number)
            && parts.by_ref().take(WORDS).filter(|part| is_word(part)).count() == WORDS
            && parts.next().is_none()
    }

    /// Returns what both ends put into the agreement on a key.
    pub(crate) fn secret(&self) -> String {
        self.to_string()
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        if !Self::is_like(text) {
            return Err(CodeError::Shape);
        }
        let (number, words) = text.split_once('-').ok_or(CodeError::Shape)?;
        let number = number.parse().map_err(|_| CodeError::Shape)?;
        let mut code = Self { number, words: [0; WORDS] };
        for (place, word) in code.words.iter_mut().zip(words.split('-')) {
            let word = word.to_ascii_lowercase();
            *place = Language::English.find_word(&word).ok_or_else(|| unknown(&word))?;
        }
        Ok(code)
    }
}

/// Says which words begin like one that is in no code: four letters tell all of them apart.
fn unknown(word: &str) -> CodeError {
    let like = Language::English.words_by_prefix_iter(word.get(..3).unwrap_or(word));
    let like: Vec<&str> = like.take(4).collect();
    let meant =
        if like.is_empty() { String::new() } else { format!("; did you mean {}?", like.join(" or ")) };
    CodeError::Word(word.to_owned(), meant)
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.number)?;
        let list = Language::English.word_list();
        self.words.iter().try_for_each(|&word| write!(out, "-{}", list[usize::from(word) % list.len()]))
    }
}

/// The words are secret.
impl fmt::Debug for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Code({}-…)", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_reads_back_and_shows_no_words_in_logs() {
        for number in [0, 7, u16::MAX] {
            let code = Code::draw(number);
            let text = code.to_string();
            assert!(Code::is_like(&text), "{text}");
            assert_eq!(text.to_uppercase().parse(), Ok(code.clone()));
            assert_eq!(format!("{code:?}"), format!("Code({number}-…)"));
        }
        assert_ne!(Code::draw(1), Code::draw(1), "one in four million");
    }

    #[test]
    fn what_is_no_code_says_why() {
        for text in
            ["", "nas", "7", "7-velvet", "velvet-cactus", "7-velvet-cactus-x", "7--", "99999-velvet-cactus"]
        {
            assert_eq!(text.parse::<Code>(), Err(CodeError::Shape), "{text}");
        }
        let Err(CodeError::Word(word, meant)) = "7-velvit-cactus".parse::<Code>() else { panic!() };
        assert_eq!((&word[..], &meant[..]), ("velvit", "; did you mean velvet?"));
        for host in ["10-0-0-1", "pi-4-b", "2-nas"] {
            assert!(!Code::is_like(host), "{host}");
        }
    }
}
