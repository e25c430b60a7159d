//! Which files of a tree are copied: `--exclude`, `--include`, `--exclude-from`, `--files-from` and `--gitignore`.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::BTreeSet,
    ffi::OsStr,
    ops::Bound,
    os::unix::ffi::OsStrExt,
    path::Path,
    rc::Rc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use crate::{pattern::Pattern, wildcard::posix_class};

/// The name of the files that `--gitignore` reads.
pub(super) const GITIGNORE: &[u8] = b".gitignore";

/// Bytes that a `.gitignore` may have: some thirty directories are read at once.
pub(super) const MAX_GITIGNORE_BYTES: u64 = 256 << 10;

/// Bytes that the patterns of all `.gitignore` files which count at one time may take in memory: those of the directories that are being
/// copied, and of the directories above them.
pub const MAX_PATTERN_BYTES: usize = 24 << 20;

/// Bytes that the patterns of all `--exclude-from` files may take in memory, which are the user's own.
const MAX_LISTED_PATTERN_BYTES: usize = 256 << 20;

/// Bytes that a pattern without a wildcard takes, at most (measured with `ignore` 0.4: 0.9 to 1.4 KiB).
const PLAIN_BYTES: usize = 1536;

/// Bytes that a pattern with a wildcard takes beside those for its length (measured: 5 to 10 KiB for up to 20 characters).
const WILDCARD_BYTES: usize = 4 << 10;

/// Bytes that a pattern with a wildcard takes for each byte of its text (measured: 0.8 KiB at most).
const WILDCARD_BYTES_PER_BYTE: usize = 1 << 10;

/// Chooses files by their path below SRC. A directory that is not taken is not looked into.
#[derive(Debug, Default)]
pub struct Filter {
    /// The patterns of `--include` (true) and `--exclude`: the first one that matches decides.
    rules: Vec<(bool, Pattern)>,
    /// What `--exclude-from` says, for paths that no rule matches.
    ignores: Option<Rc<Ignores>>,
    /// Whether directories have `.gitignore` files that count.
    reads_gitignore: bool,
    /// Whether directories that other file systems are mounted on are left out.
    one_file_system: bool,
    /// Bytes that the patterns of `.gitignore` files take.
    pub pattern_bytes: Rc<Cell<usize>>,
    /// Bytes that those of `--exclude-from` take.
    listed_bytes: Rc<Cell<usize>>,
    listed: Option<Listed>,
}

/// The paths that `--files-from` lists, and which of them were not found yet.
#[derive(Debug)]
struct Listed {
    all: BTreeSet<Vec<u8>>,
    missing: RefCell<BTreeSet<Vec<u8>>>,
    /// Whether anything was seen in which they may be.
    has_source: Cell<bool>,
}

/// Patterns in the syntax of gitignore(5), of one directory and of those above it.
#[derive(Debug)]
pub struct Ignores {
    /// The directory, below SRC.
    directory: Vec<u8>,
    patterns: Gitignore,
    above: Option<Rc<Self>>,
    _charge: Option<Charge>,
}

/// Memory that was set aside for patterns, until this is dropped.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    all: Rc<Cell<usize>>,
}

impl Charge {
    /// Sets aside what the patterns of a text take beside all others.
    ///
    /// # Errors
    /// That is more than so many bytes, which are returned in MiB.
    fn new(text: &[u8], all: &Rc<Cell<usize>>, most: usize) -> Result<Self, usize> {
        let bytes = text.split(|&byte| byte == b'\n').map(pattern_bytes).fold(0, usize::saturating_add);
        let sum = all.get().saturating_add(bytes);
        if sum > most {
            return Err(most >> 20);
        }
        all.set(sum);
        Ok(Self { bytes, all: Rc::clone(all) })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.bytes);
    }
}

impl Filter {
    /// Takes the patterns of `--exclude` and `--include` (true), in the order in which they were given.
    pub fn new(rules: Vec<(bool, Pattern)>, reads_gitignore: bool) -> Self {
        Self { rules, reads_gitignore, ..Self::default() }
    }

    /// Leaves out directories that other file systems are mounted on, if `stays`.
    pub const fn set_one_file_system(&mut self, stays: bool) {
        self.one_file_system = stays;
    }

    /// Whether directories that other file systems are mounted on are left out.
    pub(super) const fn is_of_one_file_system(&self) -> bool {
        self.one_file_system
    }

    /// Adds the patterns of a file, in the syntax of gitignore(5).
    ///
    /// # Errors
    /// A line for the user about a pattern that means nothing, or about too many.
    pub fn add_patterns(&mut self, text: &[u8]) -> Result<(), String> {
        let charge = Charge::new(text, &self.listed_bytes, MAX_LISTED_PATTERN_BYTES)
            .map_err(|most| format!("the patterns of --exclude-from take more than {most} MiB of memory"))?;
        let ignores = Ignores::new(Vec::new(), text, self.ignores.take())?;
        self.ignores = Some(Rc::new(Ignores { _charge: Some(charge), ..ignores }));
        Ok(())
    }

    /// Takes only the files that are listed, one path below SRC a line, and what is in listed directories.
    ///
    /// # Errors
    /// A line for the user about a path that leads out of SRC.
    pub fn set_listed(&mut self, text: &[u8]) -> Result<(), String> {
        let mut all = BTreeSet::new();
        // As rsync does, lines are ignored that are empty or comments.
        let is_path = |line: &&[u8]| !matches!(line.first(), None | Some(b'#' | b';'));
        for line in text.split(|&byte| byte == b'\n').filter(is_path) {
            let mut names = Vec::new();
            for name in line.split(|&byte| byte == b'/') {
                match name {
                    b"" | b"." => {}
                    b".." if names.pop().is_none() => {
                        return Err(format!("{} leads out of SRC", crate::escape::escape(line)));
                    }
                    b".." => {}
                    name => names.push(name),
                }
            }
            all.insert(names.join(&b'/'));
        }
        // A `.` is SRC itself, which is there.
        let mut missing = all.clone();
        missing.remove(&b""[..]);
        let missing = RefCell::new(missing);
        self.listed = Some(Listed { all, missing, has_source: Cell::default() });
        Ok(())
    }

    /// Whether directories are searched for `.gitignore` files.
    pub(super) const fn reads_gitignore(&self) -> bool {
        self.reads_gitignore
    }

    /// Reads the `.gitignore` of a directory, which may be anybody's.
    ///
    /// # Errors
    /// A line for the user about a pattern that means nothing, or about too many.
    pub fn read_gitignore(
        &self,
        directory: Vec<u8>,
        text: &[u8],
        above: Option<Rc<Ignores>>,
    ) -> Result<Ignores, String> {
        if text.len() as u64 > MAX_GITIGNORE_BYTES {
            return Err(format!("has more than {} KiB", MAX_GITIGNORE_BYTES >> 10));
        }
        let charge = Charge::new(text, &self.pattern_bytes, MAX_PATTERN_BYTES).map_err(|most| {
            format!("the patterns of it and of the directories around it take more than {most} MiB of memory")
        })?;
        Ok(Ignores { _charge: Some(charge), ..Ignores::new(directory, text, above)? })
    }

    /// Returns the patterns that count everywhere.
    pub fn ignores(&self) -> Option<Rc<Ignores>> {
        self.ignores.clone()
    }

    /// Whether a path below SRC is taken, by its name and by the patterns of the directories above it.
    pub fn takes(&self, path: &[u8], is_directory: bool, ignores: Option<&Ignores>) -> bool {
        if self.listed.as_ref().is_some_and(|listed| !listed.takes(path, is_directory)) {
            return false;
        }
        let rule = self.rules.iter().find(|(_, pattern)| pattern.matches(path, is_directory));
        let takes = match rule {
            Some((includes, _)) => *includes,
            None => !ignores.is_some_and(|ignores| ignores.matches(path, is_directory)),
        };
        if !takes && is_directory {
            self.leave(path);
        }
        takes
    }

    /// Nobody looks in this directory for what `--files-from` lists.
    pub(super) fn leave(&self, path: &[u8]) {
        if let Some(listed) = &self.listed {
            let inside = [path, b"/"].concat();
            listed.missing.borrow_mut().retain(|listed| !listed.starts_with(&inside));
        }
    }

    /// Whether `--files-from` lists something below a path.
    pub(super) fn lists_below(&self, path: &[u8]) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.has_below(path))
    }

    /// A source was seen, with all names in it.
    pub fn note_source(&self) {
        if let Some(listed) = &self.listed {
            listed.has_source.set(true);
        }
    }

    /// Returns the paths of `--files-from` that were not found, if there was a source to look in.
    pub fn missing(&self) -> Vec<Vec<u8>> {
        let listed = self.listed.as_ref().filter(|listed| listed.has_source.get());
        listed.map(|listed| listed.missing.borrow().iter().cloned().collect()).unwrap_or_default()
    }
}

impl Listed {
    /// Whether a path is listed, is in a directory that is, or leads to one that is.
    fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        self.missing.borrow_mut().remove(path);
        if self.all.contains(&b""[..]) {
            return true;
        }
        let mut above = Some(path);
        while let Some(directory) = above {
            if self.all.contains(directory) {
                return true;
            }
            above = directory.iter().rposition(|&byte| byte == b'/').map(|end| &directory[..end]);
        }
        is_directory && self.has_below(path)
    }

    fn has_below(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        let mut later = self.all.range::<[u8], _>((Bound::Excluded(&inside[..]), Bound::Unbounded));
        later.next().is_some_and(|listed| listed.starts_with(&inside))
    }
}

/// Takes from braces what they do not mean in gitignore(5): alternatives.
fn without_alternatives(line: &str) -> Cow<'_, str> {
    if !line.contains(['{', '}']) {
        return Cow::Borrowed(line);
    }
    let (mut plain, mut is_escaped) = (String::new(), false);
    for c in line.chars() {
        if matches!(c, '{' | '}') && !is_escaped {
            plain.push('\\');
        }
        is_escaped = c == '\\' && !is_escaped;
        plain.push(c);
    }
    Cow::Owned(plain)
}

/// Writes `[:NAME:]` in brackets as the ranges of characters that it means in gitignore(5).
///
/// # Errors
/// A line for the user about a class that there is not.
fn without_classes(line: &str) -> Result<Cow<'_, str>, String> {
    if !line.contains("[:") {
        return Ok(Cow::Borrowed(line));
    }
    let (mut plain, mut rest) = (String::new(), line);
    let mut in_brackets = false;
    while let Some(next) = rest.chars().next() {
        let class = rest.strip_prefix("[:").filter(|_| in_brackets).and_then(|rest| rest.split_once(":]"));
        if let Some((name, behind)) = class {
            plain += &ranges(name)?;
            rest = behind;
            continue;
        }
        let length = match next {
            '\\' if !in_brackets => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' if !in_brackets => {
                // A bracket that comes first is one of the characters.
                let first = rest[1..].trim_start_matches(['!', '^']);
                in_brackets = true;
                rest.len() - first.len() + usize::from(first.starts_with(']'))
            }
            ']' => {
                in_brackets = false;
                1
            }
            other => other.len_utf8(),
        };
        let (taken, behind) = rest.split_at(length);
        plain += taken;
        rest = behind;
    }
    Ok(Cow::Owned(plain))
}

/// Returns the ranges of a class as they are written in brackets: without a slash, which brackets match in no pattern, and not with an
/// exclamation mark first, which turns the meaning round.
fn ranges(name: &str) -> Result<String, String> {
    let class = posix_class(name).ok_or_else(|| format!("there is no character class [:{name}:]"))?;
    let mut ranges = String::new();
    for &(from, to) in class.iter().rev() {
        if (from..=to).contains(&'/') {
            if to > '/' {
                ranges += &format!("0-{to}");
            }
            ranges += &format!("{from}-.");
        } else {
            ranges += &format!("{from}-{to}");
        }
    }
    Ok(ranges)
}

impl Ignores {
    /// Reads the patterns of a directory.
    ///
    /// # Errors
    /// A line for the user about a pattern that means nothing.
    pub(super) fn new(directory: Vec<u8>, text: &[u8], above: Option<Rc<Self>>) -> Result<Self, String> {
        let mut builder = GitignoreBuilder::new(".");
        // Some editors begin with a byte order mark.
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"#")) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = str::from_utf8(line).map_err(|_| format!("{}: is not UTF-8", line.escape_ascii()))?;
            let line = without_classes(line).map_err(|why| format!("{line}: {why}"))?;
            builder.add_line(None, &without_alternatives(&line)).map_err(|error| error.to_string())?;
        }
        let patterns = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { directory, patterns, above, _charge: None })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let mut next = Some(self);
        while let Some(Self { directory, patterns, above, .. }) = next {
            let below = if directory.is_empty() { path } else { &path[directory.len() + 1..] };
            match patterns.matched(Path::new(OsStr::from_bytes(below)), is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = above.as_deref(),
            }
        }
        false
    }
}

/// Returns the bytes that a line of a `.gitignore` takes in memory, at most.
fn pattern_bytes(line: &[u8]) -> usize {
    match line {
        [] | [b'#', ..] => 0,
        line if line.iter().any(|byte| b"*?[{\\".contains(byte)) => {
            WILDCARD_BYTES + WILDCARD_BYTES_PER_BYTE * line.len()
        }
        line => PLAIN_BYTES + 4 * line.len(),
    }
}

/// Returns the path of something in a directory below SRC.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[(bool, &str)]) -> Filter {
        let rules = rules.iter().map(|&(includes, pattern)| (includes, pattern.parse().unwrap()));
        Filter::new(rules.collect(), false)
    }

    fn takes(filter: &Filter, path: &str) -> bool {
        let (path, is_directory) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
        filter.takes(path.as_bytes(), is_directory, filter.ignores().as_deref())
    }

    #[test]
    fn the_first_pattern_that_matches_decides() {
        let only_c = filter(&[(true, "*/"), (true, "*.c"), (false, "*")]);
        assert!(takes(&only_c, "a/") && takes(&only_c, "a/b.c") && !takes(&only_c, "a/b.h"));
        let not_temporary = filter(&[(false, "*.tmp"), (true, "*")]);
        assert!(!takes(&not_temporary, "a.tmp") && takes(&not_temporary, "a"));
    }

    #[test]
    fn gitignore_files_count_below_their_directory_the_nearest_first() {
        let mut filter = filter(&[(true, "keep.o")]);
        filter.add_patterns(b"# objects\n*.o\n/top\n").unwrap();
        assert!(!takes(&filter, "x/a.o") && takes(&filter, "x/keep.o"));
        assert!(!takes(&filter, "top") && takes(&filter, "x/top"));
        let inner = Ignores::new(b"x".to_vec(), b"!a.o\n/y/\n", filter.ignores()).unwrap();
        let inner = |path: &str, is_directory| filter.takes(path.as_bytes(), is_directory, Some(&inner));
        assert!(inner("x/a.o", false) && !inner("x/b.o", false));
        assert!(!inner("x/y", true) && inner("x/y", false) && inner("x/z/y", true));
    }

    #[test]
    fn patterns_mean_what_they_mean_to_git() {
        let mut filter = filter(&[]);
        filter.add_patterns("\u{feff}first\r\n{a,b}\n\\{c\n# caf\u{e9}\n".as_bytes()).unwrap();
        for (path, is_taken) in
            [("first", false), ("a", true), ("b", true), ("{a,b}", false), ("{c", false), ("c", true)]
        {
            assert_eq!(takes(&filter, path), is_taken, "{path}");
        }
        for (pattern, left, taken) in [
            ("id[[:digit:]].key", &["id1.key"][..], &["id22.key", "ida.key", "id:.key"][..]),
            ("[[:punct:]]", &["!", "~", "{", "]", "-", "^", "\\"], &["a", "0", " "]),
            ("[^[:punct:]]", &["a", "0"], &["!", "~"]),
            ("[![:space:]_]", &["a"], &["_", " "]),
            ("[[:graph:]]", &["!", "0", "z"], &["zz"]),
            ("[][:alpha:]]x", &["]x", "ax"], &["1x"]),
            (r"\[[:digit:]]", &["[d]"], &["1", "[1"]),
            ("[:digit:]", &["d", ":"], &["1"]),
        ] {
            let mut filter = self::filter(&[]);
            filter.add_patterns(pattern.as_bytes()).unwrap();
            left.iter().for_each(|path| assert!(!takes(&filter, path), "{pattern} {path}"));
            taken.iter().for_each(|path| assert!(takes(&filter, path), "{pattern} {path}"));
        }
        let unknown = filter.add_patterns(b"[[:ditig:]]\n").unwrap_err();
        assert_eq!(unknown, "[[:ditig:]]: there is no character class [:ditig:]");
        // What cannot be matched would be copied, and not deleted.
        assert_eq!(filter.add_patterns(b"caf\xe9.txt\n").unwrap_err(), "caf\\xe9.txt: is not UTF-8");
        assert!(filter.add_patterns(b"# caf\xe9\n").is_ok());
    }

    #[test]
    fn the_patterns_of_a_run_take_bounded_memory() {
        let filter = Filter::new(Vec::new(), true);
        let read = |text: &str, above| filter.read_gitignore(Vec::new(), text.as_bytes(), above).map(Rc::new);
        let of =
            |count: usize, pattern: &str| (0..count).map(|it| format!("{pattern}{it}\n")).collect::<String>();
        // What people have.
        let held: Vec<_> = (0..100).map(|_| read(&of(5, "build*/x"), None).unwrap()).collect();
        let more = read(&of(2000, "name"), Some(Rc::clone(&held[0]))).unwrap();
        assert!(more.matches(b"name7", false) && more.matches(b"build-1/x3", false));
        drop((held, more));
        assert_eq!(filter.pattern_bytes.get(), 0, "what is not used any more is given back");
        for text in
            [of(5000, "**/a*a*a*a*"), of(30_000, "n"), "a*".repeat(100_000), of(1200, &"[a]".repeat(40))]
        {
            let mut above = None;
            let error = loop {
                match read(&text, above.clone()) {
                    Ok(ignores) => above = Some(ignores),
                    Err(error) => break error,
                }
            };
            assert!(error.contains("24 MiB"), "{error}");
            assert!(filter.pattern_bytes.get() <= MAX_PATTERN_BYTES);
        }
        assert!(read(&of(60_000, "name"), None).unwrap_err().contains("256 KiB"));
        assert_eq!(filter.pattern_bytes.get(), 0);
    }

    #[test]
    fn the_patterns_that_a_user_lists_take_bounded_memory() {
        let of = |count: usize, pattern: &str| format!("{pattern}\n").repeat(count).into_bytes();
        let mut filter = Filter::default();
        filter.add_patterns(&of(2000, "name*")).unwrap();
        for text in [of(60_000, "a*"), of(400_000, "n"), b"a*".repeat(1 << 20)] {
            let error = filter.add_patterns(&text).unwrap_err();
            assert!(error.contains("256 MiB"), "{error}");
        }
    }

    #[test]
    fn listed_files_are_taken_with_what_leads_to_them_and_what_is_in_them() {
        let mut filter = Filter::default();
        filter.set_listed(b"a/x/../b\n./c/\n\n/d/e/f\nnowhere\n").unwrap();
        for taken in ["a/", "a/b", "a/b/", "a/b/x", "c/", "c/x/y", "d/", "d/e/", "d/e/f"] {
            assert!(takes(&filter, taken), "{taken}");
        }
        for left in ["a", "a/c", "a-b/", "d/x", "d/e/g", "x"] {
            assert!(!takes(&filter, left), "{left}");
        }
        assert!(filter.missing().is_empty(), "there is no source");
        filter.note_source();
        assert_eq!(filter.missing(), [b"nowhere".to_vec()]);
        assert!(filter.set_listed(b"a/../../b").is_err());
    }
}
