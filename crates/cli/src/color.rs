//! Colours on terminals (`--color`).

use std::borrow::Cow;

/// When colours are shown (`--color`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    #[default]
    Auto,
    /// Also in files and pipes.
    Always,
    /// Nowhere.
    Never,
}

/// What a text is, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// As the rest.
    #[default]
    Plain,
    /// What failed.
    Error,
    /// What the user should know.
    Warning,
    /// What goes on as it should.
    Good,
    Directory,
    Symlink,
    Executable,
    /// A fifo, a socket or a device.
    Special,
}

impl Color {
    /// Whether colours are shown on a stream.
    pub(crate) fn shows(self, is_terminal: bool) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            // https://no-color.org
            Self::Auto => {
                is_terminal
                    && !is_set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }

    /// Returns what is asked for on a command line that is not understood yet.
    pub(crate) fn of_line<'a>(line: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = Self::default();
        let mut words = line.into_iter();
        while let Some(word) = words.next() {
            let value = match word {
                "--" => break,
                "--color" => words.next(),
                word => word.strip_prefix("--color="),
            };
            found = match value {
                Some("always") => Self::Always,
                Some("never") => Self::Never,
                Some("auto") => Self::Auto,
                _ => found,
            };
        }
        found
    }
}

impl From<Color> for clap::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

impl Style {
    /// Returns the parameters of the control sequence (ECMA-48 §8.3.117).
    const fn parameters(self) -> Option<&'static str> {
        Some(match self {
            Self::Plain => return None,
            Self::Error => "1;31",
            Self::Warning | Self::Special => "33",
            Self::Good => "32",
            // As ls has them.
            Self::Directory => "1;34",
            Self::Symlink => "1;36",
            Self::Executable => "1;32",
        })
    }

    /// Returns a text in its colour, where colours are shown.
    pub(crate) fn paint(self, text: &str, shows: bool) -> Cow<'_, str> {
        match self.parameters() {
            Some(parameters) if shows && !text.is_empty() => {
                format!("\u{1b}[{parameters}m{text}\u{1b}[0m").into()
            }
            _ => text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_what_follows_dashes_does_not() {
        for (line, wanted) in [
            ("cp a b", Color::Auto),
            ("cp --color never a b", Color::Never),
            ("cp --color=always --color=never a", Color::Never),
            ("cp --color=auto -- --color=never", Color::Auto),
            ("cp --color", Color::Auto),
        ] {
            assert_eq!(Color::of_line(line.split(' ')), wanted, "{line}");
        }
    }

    #[test]
    fn only_what_has_a_colour_is_painted_and_only_where_colours_are_shown() {
        assert_eq!(Style::Error.paint("nfsw:", true), "\u{1b}[1;31mnfsw:\u{1b}[0m");
        for (style, text, shows) in
            [(Style::Error, "nfsw:", false), (Style::Plain, "x", true), (Style::Good, "", true)]
        {
            assert_eq!(style.paint(text, shows), text);
        }
        assert!(Color::Always.shows(false) && !Color::Never.shows(true) && !Color::Auto.shows(false));
    }
}
