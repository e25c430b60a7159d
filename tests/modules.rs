//! The modules of a crate import each other in one direction.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The modules at the top of a crate that the code of each one names.
fn imports(package: &str) -> BTreeMap<String, BTreeSet<String>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(package).join("src");
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    let mut files = vec![source.clone()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let inside = path.strip_prefix(&source).unwrap().with_extension("");
        let module = inside.iter().next().unwrap().to_str().unwrap().to_owned();
        // Tests name what they like, and the root names all.
        if ["lib", "main", "served", "fuzzing"].contains(&&module[..]) || inside.ends_with("tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let named = lines.split("crate::").skip(1).flat_map(names);
        imports.entry(module.clone()).or_default().extend(named.filter(|name| *name != module));
    }
    imports
}

/// The names that follow `crate::`: one, or those of a group.
fn names(rest: &str) -> Vec<String> {
    let word =
        |text: &str| text.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
    let Some(group) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let (mut depth, mut start, mut names) = (0, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            ',' if depth == 0 => {
                names.push(word(&group[start..at]));
                start = at + 1;
            }
            '}' if depth == 0 => {
                names.push(word(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn no_module_imports_one_that_imports_it() {
    for (package, [module, named]) in
        [("cli", ["args", "units"]), ("nfs-files", ["copy", "servers"]), ("nfs-mount", ["start", "view"])]
    {
        let mut left = imports(package);
        assert!(left[module].contains(named), "{left:?}");
        // Those that import nothing that is left are below all others.
        while let Some(lowest) = {
            let all: BTreeSet<_> = left.keys().collect();
            left.iter()
                .find(|(_, named)| !named.iter().any(|name| all.contains(name)))
                .map(|(it, _)| it.clone())
        } {
            left.remove(&lowest);
        }
        assert!(left.is_empty(), "these of {package} go in circles: {left:#?}");
    }
}
