//! The files of a crate depend on each other in one direction.
//!
//! Read from their text: a file depends on those that define what it names. A re-export leads on to the definition, so that a module that
//! only has other files in it is in no circle. A file may use what those above it define, as the variants of a trait use the trait.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A circle of files of a crate.
type Circle = (&'static str, &'static [&'static str]);

/// Circles that may stay.
const HARMLESS: [Circle; 1] = [
    // The queue tells the trait which frame has ended how, and its variants take the next one from the queue: two sides of one call.
    (
        "linkemu",
        &[
            "arq",
            "arq/exchange",
            "arq/ideal",
            "arq/none",
            "arq/rts_cts",
            "arq/selective_repeat",
            "arq/stop_and_wait",
            "queue",
        ],
    ),
];

/// Circles that are faults. Files may leave them; none may join.
const KNOWN: [Circle; 2] = [
    (
        "nfs-files",
        &[
            "copy/destination/early_create",
            "copy/decision",
            "copy/destination/directory",
            "copy/destination/marker",
            "copy/destination/one_name",
            "copy/destination",
            "copy/destination/names",
            "copy/plan",
            "copy/resume",
            "copy/file/stream",
            "copy/file",
            "copy/file/upload",
            "copy/compare",
            "copy/file/verify",
        ],
    ),
    (
        "nfs-wireless-client",
        &[
            "client",
            "client/inner",
            "client/names",
            "client/roaming",
            "config",
            "connect",
            "connect/ahead",
            "endpoint",
            "known",
            "read_dir",
        ],
    ),
];

/// Crates in which modules at the top, taken as a whole, are in no circle either.
const LAYERED: [&str; 3] = ["cli", "nfs-files", "nfs-mount"];

/// Where a file is in its crate: no segment is the root.
type Module = Vec<String>;

/// A path in an import, and the name that it has here; `*` for all names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    path: Vec<String>,
    name: String,
    is_shared: bool,
}

/// What the code of a file, without its tests, says.
#[derive(Debug, Default)]
struct Source {
    imports: Vec<Import>,
    defined: BTreeSet<String>,
    /// All paths outside imports; single words too.
    named: BTreeSet<Vec<String>>,
}

type Sources = BTreeMap<Module, Source>;

/// Leaves out comments, and what is there for tests only.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        if line.trim() != "#[cfg(test)]" {
            code.push_str(line.split(" // ").next().unwrap());
            code.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let item = lines.by_ref().find(|line| !line.trim_start().starts_with("#[")).unwrap_or_default();
        if !item.ends_with([';', '}']) {
            lines.by_ref().find(|line| line.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}')));
        }
    }
    code
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Adds what a tree of imports names.
fn import(tree: &str, before: &[String], is_shared: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some(group) = tree.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    if !group[start..at].trim().is_empty() {
                        import(&group[start..at], before, is_shared, imports);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    if let Some((first, rest)) = tree.split_once("::") {
        let path = [before, &[first.trim().to_owned()]].concat();
        return import(rest, &path, is_shared, imports);
    }
    let (last, name) = tree.split_once(" as ").unwrap_or((tree, tree));
    let mut path = before.to_owned();
    if last != "self" || path.is_empty() {
        path.push(last.to_owned());
    }
    let name = if name == "self" { path[path.len() - 1].clone() } else { name.trim().to_owned() };
    imports.push(Import { path, name, is_shared });
}

impl Source {
    fn of(text: &str) -> Self {
        let mut source = Self::default();
        let code = code_of(text);
        let mut rest = &code[..];
        let mut path = Vec::<String>::new();
        let mut before = String::new();
        while let Some(at) = rest.find(is_word) {
            let gap = &rest[..at];
            let end = rest[at..].find(|letter| !is_word(letter)).map_or(rest.len(), |length| at + length);
            let word = &rest[at..end];
            rest = &rest[end..];
            if word == "use"
                && (gap.ends_with('\n') || gap.trim().is_empty() || gap.trim_end().ends_with(')'))
            {
                let (tree, after) = rest.split_once(';').unwrap_or((rest, ""));
                let is_shared = before == "pub" || gap.trim_end().ends_with(')');
                import(tree, &[], is_shared, &mut source.imports);
                source.named.insert(std::mem::take(&mut path));
                rest = after;
                continue;
            }
            if gap != "::" {
                source.named.insert(std::mem::take(&mut path));
            }
            path.push(word.to_owned());
            let defines =
                ["struct", "enum", "trait", "fn", "const", "static", "type", "union", "mod", "macro_rules"];
            // What is in braces behind it makes `mod` a part of this file.
            let is_file = before == "mod" && rest.starts_with(';');
            if defines.contains(&&before[..]) && !is_file {
                source.defined.insert(word.to_owned());
            }
            word.clone_into(&mut before);
        }
        source.named.insert(path);
        source
    }
}

/// Reads the files of a crate.
fn read(package: &str) -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(package).join("src");
    let (mut sources, mut left) = (Sources::new(), vec![root.clone()]);
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let module = module_of(path.strip_prefix(&root).unwrap().with_extension(""));
        if path.extension().is_some_and(|it| it == "rs") && !module.contains(&"tests".to_owned()) {
            sources.insert(module, Source::of(&fs::read_to_string(&path).unwrap()));
        }
    }
    sources
}

fn module_of(inside: PathBuf) -> Module {
    let mut module: Module = inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if ["lib", "main", "mod"].contains(&&module[module.len() - 1][..]) {
        module.pop();
    }
    module
}

/// Finds the file that defines what a path names, if it is of this crate, and what is left of the path there.
fn find(sources: &Sources, here: &[String], path: &[String], depth: u8) -> Option<(Module, Vec<String>)> {
    let (first, mut rest) = path.split_first().filter(|_| depth < 9)?;
    let mut at: Module = match &first[..] {
        "crate" => Vec::new(),
        "self" => here.to_owned(),
        "super" => here[..here.len().checked_sub(1)?].to_owned(),
        _ => {
            rest = path;
            here.to_owned()
        }
    };
    let is_here = rest.len() == path.len();
    while let Some((name, after)) = rest.split_first() {
        let below = [&at[..], std::slice::from_ref(name)].concat();
        let source = sources.get(&at)?;
        if name == "super" {
            at.pop()?;
        } else if source.defined.contains(name) {
            return Some((at, rest.to_owned()));
        } else if let Some(import) = source.imports.iter().find(|import| import.name == *name) {
            let on = [&import.path[..], after].concat();
            // An import of another crate has a first word that is nothing here.
            return if on == path && at == here { None } else { find(sources, &at, &on, depth + 1) };
        } else if sources.contains_key(&below) {
            at = below;
        } else {
            for all in source.imports.iter().filter(|import| import.name == "*") {
                let on = [&all.path[..all.path.len() - 1], rest].concat();
                if on != path
                    && let Some(found) = find(sources, &at, &on, depth + 1)
                {
                    return Some(found);
                }
            }
            return (!is_here || at != here).then(|| (at, rest.to_owned()));
        }
        rest = after;
    }
    Some((at, Vec::new()))
}

/// Which files each file depends on.
fn dependencies(sources: &Sources) -> BTreeMap<&Module, BTreeSet<Module>> {
    let of = |(here, source): (&Module, &Source)| {
        let is_used = |import: &&Import| {
            !import.is_shared || source.named.iter().any(|it| it.first() == Some(&import.name))
        };
        // A single word may be one of all names that were imported.
        let has_all = source.imports.iter().any(|import| import.name == "*");
        let imported = source.imports.iter().filter(is_used).map(|import| &import.path);
        let all = imported.chain(source.named.iter().filter(|path| path.len() > 1 || has_all));
        let found = all.filter_map(|path| find(sources, here, path, 0));
        // A module alone is a name for what is in it.
        found
            .filter(|(module, rest)| !here.starts_with(module) && !rest.is_empty())
            .map(|(module, _)| module)
            .collect()
    };
    sources.iter().map(|it| (it.0, of(it))).collect()
}

/// Finds the groups of files that depend on each other.
fn circles(all: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<String>> {
    let reach = |from: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            for next in all.get(module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        all.keys().map(|module| (*module, reach(module))).collect();
    let circle = |from: &Module| {
        reached[from].iter().filter(|it| reached[*it].contains(from)).map(|it| it.join("/")).collect()
    };
    all.keys().map(|module| circle(module)).filter(|circle: &BTreeSet<String>| circle.len() > 1).collect()
}

/// All edges in a circle, for whoever has to take one away.
fn edges(all: &BTreeMap<&Module, BTreeSet<Module>>, circle: &BTreeSet<String>) -> String {
    let inside = |module: &&Module| circle.contains(&module.join("/"));
    let edges = all.iter().filter(|(from, _)| inside(from)).flat_map(|(from, to)| {
        to.iter().filter(inside).map(|to| format!("{} -> {}\n", from.join("/"), to.join("/")))
    });
    edges.collect()
}

#[test]
fn no_file_joins_a_circle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut known: Vec<Circle> = HARMLESS.into_iter().chain(KNOWN).collect();
    let mut new = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let package = entry.unwrap().file_name().into_string().unwrap();
        let sources = read(&package);
        let all = dependencies(&sources);
        assert!(all.values().any(|to| !to.is_empty()), "nothing is found in {package}");
        let circles = circles(&all);
        let is_known = |circle: &BTreeSet<String>, (of, files): &Circle| {
            *of == package && circle.iter().all(|file| files.contains(&&file[..]))
        };
        for circle in &circles {
            if !known.iter().any(|it| is_known(circle, it)) {
                new.push_str(&format!("{package}: {circle:?}\n{}", edges(&all, circle)));
            }
        }
        known.retain(|it| it.0 != package || !circles.iter().any(|circle| is_known(circle, it)));
    }
    assert!(new.is_empty(), "files that depend on each other:\n{new}");
    assert!(known.is_empty(), "these are in no circle any more, take them off the list: {known:?}");
}

#[test]
fn modules_at_the_top_are_in_layers() {
    for package in LAYERED {
        let sources = read(package);
        let mut tops = BTreeMap::<Module, BTreeSet<Module>>::new();
        for (from, to) in dependencies(&sources) {
            let top = |module: &Module| module.first().map(|first| vec![first.clone()]);
            let Some(from) = top(from) else { continue };
            let to = to.iter().filter_map(top).filter(|to| *to != from).collect::<Vec<_>>();
            tops.entry(from).or_default().extend(to);
        }
        let all = tops.iter().map(|(from, to)| (from, to.clone())).collect();
        let found: String = circles(&all).iter().map(|circle| edges(&all, circle)).collect();
        assert!(found.is_empty(), "modules of {package} that depend on each other:\n{found}");
    }
}

#[test]
fn circles_are_seen_through_groups_names_and_re_exports() {
    let circles_of = |files: &[(&str, &str)]| {
        let module =
            |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let sources = files.iter().map(|(path, text)| (module(path), Source::of(text))).collect();
        let found = circles(&dependencies(&sources));
        found.iter().map(|it| it.iter().cloned().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("; ")
    };
    let root = ("", "mod a;\nmod b;\npub use a::A;\npub use b::{B, one_b as other_b};\n");
    let b = ("b", "use crate::A;\npub struct B(A);\npub fn one_b() {}\n");
    for (a, expected) in [
        ("pub struct A;\n", ""),
        ("use crate::b::B;\npub struct A(B);\n", "a b"),
        ("use crate::{\n    b::{self, one_b},\n};\npub struct A;\n", "a b"),
        ("use crate::b;\npub struct A(b::B);\n", "a b"),
        ("use super::B;\npub struct A(B);\n", "a b"),
        ("pub struct A(crate::B);\n", "a b"),
        ("pub struct A;\nfn a() { super::other_b() }\n", "a b"),
        ("use crate::*;\npub struct A(B);\n", "a b"),
        ("// use crate::b::B;\npub struct A;\n", ""),
        ("pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n", ""),
        ("pub struct A;\n#[cfg(test)]\nuse crate::b::B;\n", ""),
    ] {
        assert_eq!(circles_of(&[root, ("a", a), b]), expected, "{a}");
    }
    // Variants use their trait, and are no circle with it; with each other they are.
    let above = ("t", "mod one;\nmod two;\npub trait T {}\nfn all() -> (one::One, two::Two) { made() }\n");
    let one = ("t/one", "use super::T;\npub struct One;\n");
    let two = |text| ("t/two", text);
    assert_eq!(circles_of(&[above, one, two("use super::T;\npub struct Two;\n")]), "");
    let both = [
        above,
        ("t/one", "use super::two::Two;\npub struct One(Two);\n"),
        two("use super::one::One;\npub struct Two(One);\n"),
    ];
    assert_eq!(circles_of(&both), "t/one t/two");
}
