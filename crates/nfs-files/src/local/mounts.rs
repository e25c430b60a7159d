//! The table of what is mounted (proc_pid_mountinfo(5)).

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// Where it is.
pub const TABLE: &str = "/proc/self/mountinfo";

/// A line of it.
#[derive(Debug)]
pub struct Line<'a> {
    /// The mount point.
    pub path: PathBuf,
    /// Its device number, `MAJOR:MINOR`.
    pub device: &'a [u8],
    /// The type of the file system.
    pub kind: &'a [u8],
    /// What it shows, as whoever has mounted it calls that.
    pub source: Vec<u8>,
    /// Options of the file system, separated by commas.
    pub options: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = fields.nth(2)?;
        let path = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
        let mut fields = fields.skip_while(|&field| field != b"-");
        let (kind, source, options) = (fields.nth(1)?, unescape(fields.next()?), fields.next()?);
        Some(Self { path, device, kind, source, options })
    }
}

/// Undoes the kernel's escapes: `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) if byte == b'\\' => {
                out.push(escaped);
                rest = &tail[3..];
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// The directories on which programs have mounted file systems of theirs, through FUSE.
#[derive(Debug)]
pub struct OfPrograms(Vec<(PathBuf, bool)>);

impl OfPrograms {
    /// Reads the table.
    ///
    /// # Errors
    /// What reading it fails of.
    pub fn read() -> io::Result<Self> {
        Ok(Self::of(&fs::read(TABLE)?))
    }

    fn of(table: &[u8]) -> Self {
        let lines: Vec<_> = table.split(|&byte| byte == b'\n').filter_map(Line::parse).collect();
        let is_of_program = |line: &Line<'_>| line.kind.starts_with(b"fuse");
        let programs = lines.iter().filter(|line| is_of_program(line)).map(|line| &*line.path);
        let held: Vec<&Path> = programs.filter(|path| path.parent().is_some()).collect();
        // What lies over one of them responds no better.
        let lies_over = |line: &Line<'_>| {
            let options = line.options.split(|&byte| byte == b',');
            let layers = options.filter_map(|option| {
                option.strip_prefix(b"lowerdir=").or_else(|| option.strip_prefix(b"upperdir="))
            });
            let mut paths = layers
                .flat_map(|layers| layers.split(|&byte| byte == b':'))
                .map(|layer| PathBuf::from(OsString::from_vec(unescape(layer))));
            line.kind == b"overlay" && paths.any(|path| held.iter().any(|held| path.starts_with(held)))
        };
        let is_held = |line: &Line<'_>| is_of_program(line) || lies_over(line);
        Self(lines.iter().map(|line| (line.path.clone(), is_held(line))).collect())
    }

    /// Whether a path leads into one of them, by its names and by links, or to a directory in which one is mounted. What is there is not
    /// touched: it may not respond. A file system that is the root of all others is none.
    pub fn hold(&self, path: &Path) -> bool {
        /// Links that lead on (Linux' limit).
        const MAX_LINKS: usize = 40;
        let Ok(path) = std::path::absolute(path) else { return false };
        let names = |path: &Path| path.iter().rev().map(OsString::from).collect::<Vec<_>>();
        let (mut at, mut left, mut links) = (PathBuf::new(), names(&path), 0);
        while let Some(name) = left.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            let mounted = self.0.iter().rfind(|(path, _)| *path == at);
            if mounted.is_some_and(|(_, is_served)| *is_served) && at.parent().is_some() {
                return true;
            }
            if let Ok(target) = fs::read_link(&at)
                && links < MAX_LINKS
            {
                links += 1;
                at.pop();
                left.extend(names(&target));
            }
        }
        let is_below = |path: &Path| path.starts_with(&at) && path.parent().is_some();
        self.0.iter().any(|(path, is_served)| *is_served && is_below(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_into_the_file_system_of_a_program_by_its_names_and_by_links() {
        let place = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(place.join("stick/x")).unwrap();
        fs::create_dir_all(place.join("covered/x")).unwrap();
        for (link, target) in
            [("link", "stick/x"), ("absolute", place.join("link").to_str().unwrap()), ("circle", "circle")]
        {
            std::os::unix::fs::symlink(target, place.join(link)).unwrap();
        }
        let line = |path: &Path, kind: &str| format!("24 28 0:22 / {} rw - {kind} x rw\n", path.display());
        let (stick, covered) = (place.join("stick"), place.join("covered"));
        let lines = [
            line(Path::new("/"), "fuse.overlayfs"),
            line(&stick, "fuse.sshfs"),
            line(&covered, "fuse"),
            line(&covered, "tmpfs"),
            line(&place.join("over"), "overlay")
                .replace("x rw", &format!("x rw,lowerdir=/y:{}/x", stick.display())),
            line(&place.join("beside"), "overlay").replace("x rw", "x rw,lowerdir=/y,upperdir=/z"),
        ];
        let found = OfPrograms::of(lines.concat().as_bytes());
        for (path, is_held) in [
            ("stick", true),
            ("stick/missing", true),
            ("link", true),
            ("absolute/y", true),
            ("covered/../stick", true),
            ("covered/x", false),
            ("circle", false),
            ("stickers", false),
            ("missing", false),
            // One is mounted in it.
            ("", true),
            ("over/x", true),
            ("beside/x", false),
        ] {
            assert_eq!(found.hold(&place.join(path)), is_held, "{path}");
        }
    }
}
