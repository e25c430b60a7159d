//! The 22 procedures of NFSv3.

use std::fmt;

macro_rules! procedures {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// An NFSv3 procedure (RFC 1813 §3.3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Procedure {
            $(#[doc = concat!("NFSPROC3_", $text, ", procedure ", stringify!($number), ".")] $name = $number,)*
        }

        impl Procedure {
            /// All procedures in the order of their numbers.
            pub const ALL: [Self; 22] = [$(Self::$name),*];

            /// Returns the procedure with this number, if there is one.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the RFC's name without its prefix, such as `READ`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

procedures! {
    Null = 0, "NULL";
    Getattr = 1, "GETATTR";
    Setattr = 2, "SETATTR";
    Lookup = 3, "LOOKUP";
    Access = 4, "ACCESS";
    Readlink = 5, "READLINK";
    Read = 6, "READ";
    Write = 7, "WRITE";
    Create = 8, "CREATE";
    Mkdir = 9, "MKDIR";
    Symlink = 10, "SYMLINK";
    Mknod = 11, "MKNOD";
    Remove = 12, "REMOVE";
    Rmdir = 13, "RMDIR";
    Rename = 14, "RENAME";
    Link = 15, "LINK";
    Readdir = 16, "READDIR";
    Readdirplus = 17, "READDIRPLUS";
    Fsstat = 18, "FSSTAT";
    Fsinfo = 19, "FSINFO";
    Pathconf = 20, "PATHCONF";
    Commit = 21, "COMMIT";
}

impl Procedure {
    /// Returns the number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether the procedure changes nothing on the server, so that it may be asked any number of times.
    pub const fn is_read_only(self) -> bool {
        match self {
            Self::Null
            | Self::Getattr
            | Self::Lookup
            | Self::Access
            | Self::Readlink
            | Self::Read
            | Self::Readdir
            | Self::Readdirplus
            | Self::Fsstat
            | Self::Fsinfo
            | Self::Pathconf
            | Self::Commit => true,
            Self::Setattr
            | Self::Write
            | Self::Create
            | Self::Mkdir
            | Self::Symlink
            | Self::Mknod
            | Self::Remove
            | Self::Rmdir
            | Self::Rename
            | Self::Link => false,
        }
    }
}

impl fmt::Display for Procedure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_have_the_numbers_and_effects_of_the_rfc() {
        // RFC 1813 §3.3: whether each changes something, by number.
        let changes = [
            ("NULL", false),
            ("GETATTR", false),
            ("SETATTR", true),
            ("LOOKUP", false),
            ("ACCESS", false),
            ("READLINK", false),
            ("READ", false),
            ("WRITE", true),
            ("CREATE", true),
            ("MKDIR", true),
            ("SYMLINK", true),
            ("MKNOD", true),
            ("REMOVE", true),
            ("RMDIR", true),
            ("RENAME", true),
            ("LINK", true),
            ("READDIR", false),
            ("READDIRPLUS", false),
            ("FSSTAT", false),
            ("FSINFO", false),
            ("PATHCONF", false),
            ("COMMIT", false),
        ];
        assert_eq!(Procedure::ALL.len(), changes.len());
        for (number, (name, is_change)) in changes.into_iter().enumerate() {
            let procedure = Procedure::ALL[number];
            assert_eq!((procedure.number() as usize, procedure.to_string()), (number, name.to_owned()));
            assert_eq!(procedure.is_read_only(), !is_change, "{name}");
        }
    }
}
