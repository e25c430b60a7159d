//! What a name is in addresses and headers, and what browsers may do with the file.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What is not itself in a part of a path (RFC 3986 §2.3).
const NOT_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is not itself in a parameter of a header (RFC 8187 §3.2.1).
const NOT_IN_PARAMETERS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// What a browser is told about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The `Content-Type`.
    pub(crate) media_type: String,
    pub(crate) handling: Handling,
}

/// What a browser may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Show it, with nothing in it having any rights here.
    Show,
    /// The same, without the sandbox, in which browsers show no such files.
    ShowDocument,
    /// Keep it: a script in it would run in the name of this site, or it cannot be shown.
    Keep,
}

/// Returns a name as a part of the path of an address.
pub(crate) fn in_path(name: &[u8]) -> String {
    percent_encode(name, NOT_IN_PATHS).to_string()
}

/// Returns the `Content-Disposition` of a file (RFC 6266): its name in ASCII for old browsers, and in UTF-8.
pub(crate) fn disposition(handling: Handling, name: &str) -> String {
    let kind = match handling {
        Handling::Show | Handling::ShowDocument => "inline",
        Handling::Keep => "attachment",
    };
    let plain = |letter: char| letter.is_ascii() && !letter.is_ascii_control() && !"\"\\%/".contains(letter);
    let ascii: String = name.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    let encoded = percent_encode(name.as_bytes(), NOT_IN_PARAMETERS);
    format!("{kind}; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

/// Tells from its name what a file is.
pub(crate) fn kind(name: &[u8]) -> Kind {
    let guess = mime_guess::from_path(&*String::from_utf8_lossy(name)).first_or_octet_stream();
    let (whole, class, subtype) = (guess.essence_str(), guess.type_().as_str(), guess.subtype().as_str());
    let runs_scripts =
        ["html", "xml", "svg", "xsl", "xslt", "mathml"].iter().any(|word| whole.contains(word));
    let is_text = class == "text" || matches!(subtype, "json" | "javascript" | "toml" | "x-sh" | "x-yaml");
    let of = |media_type: &str, handling| Kind { media_type: media_type.to_owned(), handling };
    match class {
        _ if runs_scripts => of(whole, Handling::Keep),
        "image" | "audio" | "video" => of(whole, Handling::Show),
        _ if whole == "application/pdf" => of(whole, Handling::ShowDocument),
        // What it is called would make a program of it, such as a style sheet.
        _ if is_text => of("text/plain; charset=utf-8", Handling::Show),
        _ => of(whole, Handling::Keep),
    }
}

/// Whether a file is a picture that every browser shows.
pub(crate) fn is_picture(name: &[u8]) -> bool {
    let Kind { media_type, handling } = kind(name);
    let shown = ["image/jpeg", "image/png", "image/gif", "image/webp", "image/avif", "image/bmp"];
    handling == Handling::Show && shown.contains(&&*media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_run_a_script_is_kept_and_programs_are_text() {
        for name in [
            "a.html", "a.HTM", "a.svg", "a.xml", "a.xhtml", "a.xsl", "a.rss", "a.mathml", "a.svgz", "a.shtml",
        ] {
            assert_eq!(kind(name.as_bytes()).handling, Handling::Keep, "{name}");
        }
        for name in ["a.txt", "a.js", "a.css", "a.rs", "a.json", "a.md", "a.mjs"] {
            let Kind { media_type, handling } = kind(name.as_bytes());
            assert_eq!((&*media_type, handling), ("text/plain; charset=utf-8", Handling::Show), "{name}");
        }
        assert_eq!(kind(b"a.pdf").handling, Handling::ShowDocument);
        assert_eq!(
            kind(b"IMG_1.JPG"),
            Kind { media_type: "image/jpeg".to_owned(), handling: Handling::Show }
        );
        for name in [&b"a"[..], b"\xff.unknown", b".html"] {
            assert_eq!(kind(name).handling, Handling::Keep, "{name:?}");
        }
        assert!(is_picture(b"a.jpg") && !is_picture(b"a.svg") && !is_picture(b"a.tiff"));
    }

    #[test]
    fn names_are_quoted_for_headers_and_addresses() {
        let said = disposition(Handling::Keep, "a \"b\"\r\n\\ é%.txt");
        let expected =
            "attachment; filename=\"a _b____ __.txt\"; filename*=UTF-8''a%20%22b%22%0D%0A%5C%20%C3%A9%25.txt";
        assert_eq!(said, expected);
        assert_eq!(in_path(b"a b?#%\"<\xff.txt"), "a%20b%3F%23%25%22%3C%FF.txt");
        assert_eq!(in_path(b"javascript:x//.."), "javascript%3Ax%2F%2F..");
    }
}
