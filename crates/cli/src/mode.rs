//! Permissions as `chmod` takes them.

use std::str::FromStr;

/// A change of permissions: `640`, or clauses such as `u+rwX,go-w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// These bits, whatever they were.
    Absolute(u32),
    /// One clause after the other.
    Symbolic(Vec<Clause>),
}

/// One clause of a symbolic change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// The bits of the classes named: owner 0o4700, group 0o2070, others 0o1007.
    who: u32,
    /// Whether the classes were left out, so that the umask applies.
    masked: bool,
    operator: Operator,
    /// Permissions for all classes.
    bits: u32,
    /// `X`: execution for directories, and for files somebody may execute.
    conditional_execute: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

impl ModeChange {
    /// Returns the permissions after the change.
    pub(crate) fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        match self {
            Self::Absolute(mode) => *mode,
            Self::Symbolic(clauses) => {
                clauses.iter().fold(mode, |mode, clause| clause.apply(mode, is_directory, umask))
            }
        }
    }
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return parse_octal(text).map(Self::Absolute);
        }
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            parse_clause(clause, &mut clauses)
                .ok_or_else(|| format!("{clause:?} is not a mode such as 640, u+x or go=rX"))?;
        }
        Ok(Self::Symbolic(clauses))
    }
}

impl Clause {
    fn apply(self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        let mut bits = self.bits;
        if self.conditional_execute && (is_directory || mode & 0o111 != 0) {
            bits |= 0o111;
        }
        bits &= self.who;
        if self.masked {
            bits &= !umask;
        }
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            // Like GNU chmod: a directory keeps its setuid and setgid bits unless they are named.
            Operator::Set if is_directory => (mode & (!self.who | 0o6000)) | bits,
            Operator::Set => (mode & !self.who) | bits,
        }
    }
}

/// Reads permissions in octal, at most 7777.
pub(crate) fn parse_octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 && !text.starts_with('+') => Ok(mode),
        _ => Err("expected an octal mode such as 755".to_owned()),
    }
}

/// Reads `[ugoa]*([+-=][rwxXst]*)+`.
fn parse_clause(text: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let actions = text.find(['+', '-', '='])?;
    let mut who = 0;
    for class in text[..actions].chars() {
        who |= match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    let masked = who == 0;
    let who = if masked { 0o7777 } else { who };
    for action in text[actions..].chars() {
        let operator = match action {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => {
                let clause: &mut Clause = clauses.last_mut().expect("an operator comes first");
                match action {
                    'r' => clause.bits |= 0o444,
                    'w' => clause.bits |= 0o222,
                    'x' => clause.bits |= 0o111,
                    'X' => clause.conditional_execute = true,
                    's' => clause.bits |= 0o6000,
                    't' => {
                        clause.bits |= 0o1000;
                        clause.who |= 0o1000;
                    }
                    _ => return None,
                }
                continue;
            }
        };
        clauses.push(Clause { who, masked, operator, bits: 0, conditional_execute: false });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, mode: u32) -> u32 {
        text.parse::<ModeChange>().unwrap().apply(mode, false, 0o022)
    }

    #[test]
    fn symbolic_modes_change_only_the_classes_named() {
        assert_eq!(change("640", 0o777), 0o640);
        assert_eq!(change("u+x", 0o644), 0o744);
        assert_eq!(change("go-rwx", 0o755), 0o700);
        assert_eq!(change("a=r", 0o4755), 0o444);
        assert_eq!(change("u=rw,go=r", 0), 0o644);
        assert_eq!(change("u+r-w", 0o200), 0o400);
        assert_eq!(change("u+s,o+t", 0o755), 0o5755);
        assert_eq!(change("g+s", 0o755), 0o2755);
    }

    #[test]
    fn without_a_class_the_umask_applies() {
        assert_eq!(change("+w", 0o444), 0o644);
        assert_eq!(change("+x", 0o644), 0o755);
    }

    #[test]
    fn conditional_execution_is_for_directories_and_programs() {
        let change: ModeChange = "a+X".parse().unwrap();
        assert_eq!(change.apply(0o644, false, 0), 0o644);
        assert_eq!(change.apply(0o744, false, 0), 0o755);
        assert_eq!(change.apply(0o644, true, 0), 0o755);
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["", "u", "888", "17777", "u+q", "z+r", "u+r,", "rwx"] {
            assert!(wrong.parse::<ModeChange>().is_err(), "{wrong}");
        }
    }
}
