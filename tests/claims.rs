//! What docs/guarantees.md and docs/reliability.md claim has tests that assert it.
//!
//! `tests/claims.toml` is the only source of their tables.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// Longest line of prose, in characters.
const LINE: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    guarantee: Vec<Claim>,
    file: Vec<Claim>,
    /// What `nfsw serve` can be made to do.
    serve: Vec<Claim>,
    /// What `nfsw mount` promises.
    mount: Vec<Claim>,
    measured: Vec<Measured>,
}

/// Something that holds, and what asserts it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    text: String,
    tests: Vec<String>,
}

/// Something that was measured, by tests that fail where it is not so.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    what: String,
    every_run: String,
    #[serde(default)]
    long: String,
    tests: Vec<String>,
    /// Tests of `./ci.sh long`.
    #[serde(default)]
    long_tests: Vec<String>,
}

/// The sources that may have tests, by path.
struct Sources(BTreeMap<String, String>);

/// When a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Always,
    /// Only if it is asked for.
    Long,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let mut sources = BTreeMap::new();
        for folder in ["crates", "tests", "benches"] {
            walk(&root.join(folder), &mut |path| {
                let name = path.strip_prefix(root).expect("below").with_extension("");
                let text = fs::read_to_string(path).expect("UTF-8");
                sources.insert(format!("/{}", name.display()), text);
            });
        }
        Self(sources)
    }

    /// Finds the one file whose path ends like this.
    fn file(&self, end: &str) -> Result<&str, String> {
        let end = format!("/{end}");
        let mut found = self.0.iter().filter(|(path, _)| path.ends_with(&end));
        match (found.next(), found.next()) {
            (Some((_, text)), None) => Ok(text),
            (None, _) => Err(format!("there is no file {end}.rs")),
            (Some((one, _)), Some((other, _))) => Err(format!("{end} is {one}.rs and {other}.rs")),
        }
    }

    /// Returns the tests that a reference names.
    fn tests(&self, reference: &str) -> Result<Vec<Runs>, String> {
        let (file, name) =
            reference.split_once("::").ok_or_else(|| format!("{reference} is no FILE::function"))?;
        let tests = tests_of(self.file(file)?);
        let named: Vec<Runs> =
            tests.iter().filter(|(test, _)| name == "*" || **test == name).map(|(_, runs)| *runs).collect();
        if named.is_empty() { Err(format!("there is no test {reference}")) } else { Ok(named) }
    }

    /// Checks that each reference names a test that runs then.
    fn check(&self, tests: &[String], runs: Runs) -> Result<(), String> {
        for reference in tests {
            if !self.tests(reference)?.contains(&runs) {
                return Err(format!("{reference} does not run {runs:?}"));
            }
        }
        Ok(())
    }

    fn check_all(&self, manifest: &Manifest) -> Result<(), String> {
        for claim in
            manifest.guarantee.iter().chain(&manifest.file).chain(&manifest.serve).chain(&manifest.mount)
        {
            if claim.tests.is_empty() {
                return Err(format!("nothing asserts {:?}", claim.text));
            }
            // Some are asserted by a long form, too, but none by that alone.
            let runs = claim.tests.iter().map(|test| self.tests(test)).collect::<Result<Vec<_>, _>>()?;
            if !runs.concat().contains(&Runs::Always) {
                return Err(format!("no run asserts {:?}", claim.text));
            }
        }
        for row in &manifest.measured {
            if row.tests.is_empty() {
                return Err(format!("nothing asserts {:?}", row.what));
            }
            self.check(&row.tests, Runs::Always)?;
            self.check(&row.long_tests, Runs::Long)?;
        }
        Ok(())
    }
}

/// Finds the tests in a file, among them the rows of tables of misbehaviours.
fn tests_of(source: &str) -> BTreeMap<&str, Runs> {
    let mut tests = BTreeMap::new();
    let (mut is_test, mut runs, mut in_table) = (false, Runs::Always, false);
    for line in source.lines() {
        let code = line.trim_start();
        if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            is_test = true;
        } else if code.starts_with("#[ignore") {
            runs = Runs::Long;
        } else if let Some((_, rest)) = code.split_once("fn ").filter(|_| !code.starts_with("//")) {
            if is_test && let Some((name, _)) = rest.split_once('(') {
                tests.insert(name, runs);
            }
            (is_test, runs) = (false, Runs::Always);
        }
        match line {
            "misbehaviours! {" => in_table = true,
            "}" => in_table = false,
            _ => {}
        }
        let row = line.strip_prefix("    ").filter(|row| in_table && !row.starts_with(' '));
        if let Some((name, _)) = row.and_then(|row| row.split_once(':'))
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        {
            tests.insert(name, Runs::Always);
        }
    }
    tests
}

fn walk(folder: &Path, found: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found(&path);
        }
    }
}

/// Says which tests these are, those of a file together.
fn cite(tests: &[String]) -> String {
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for test in tests {
        let (file, name) = test.split_once("::").expect("checked");
        match files.iter_mut().find(|(other, _)| *other == file) {
            Some((_, names)) => names.push(name),
            None => files.push((file, vec![name])),
        }
    }
    let cited = files.into_iter().map(|(file, names)| {
        let names: Vec<_> =
            names.iter().filter(|name| **name != "*").map(|name| format!("`{name}`")).collect();
        if names.is_empty() { format!("`{file}`") } else { format!("`{file}`: {}", names.join(", ")) }
    });
    cited.collect::<Vec<_>>().join("; ")
}

/// Breaks prose into lines, all but the first of which are indented.
fn wrap(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > LINE {
            lines.push('\n');
            lines.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines + "\n"
}

fn guarantees(manifest: &Manifest) -> String {
    let mut text = String::new();
    for (number, claim) in (1..).zip(&manifest.guarantee) {
        let number = format!("{number}. ");
        let line = format!("{number}{} ({})", claim.text, cite(&claim.tests));
        text.push_str(&wrap(&line, &" ".repeat(number.len())));
    }
    text
}

fn list(claims: &[Claim]) -> String {
    let line = |claim: &Claim| wrap(&format!("- {} ({})", claim.text, cite(&claim.tests)), "  ");
    claims.iter().map(line).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn promises_of_files(manifest: &Manifest) -> String {
    let mut text = "| it promises | tests |\n|---|---|\n".to_owned();
    for claim in &manifest.file {
        text.push_str(&format!("| {} | {} |\n", one_line(&claim.text), cite(&claim.tests)));
    }
    text
}

fn measured(manifest: &Manifest) -> String {
    let mut text =
        "| test | in every run | long form (`./ci.sh long`), measured |\n|---|---|---|\n".to_owned();
    for row in &manifest.measured {
        let [what, every_run, long] = [&row.what, &row.every_run, &row.long].map(|cell| one_line(cell));
        text.push_str(&format!("| {what} | {every_run} | {long} |\n"));
    }
    text
}

/// Replaces what is between the marks of a name.
fn renew(document: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- claims: {name} -->\n"), "<!-- /claims -->");
    let (before, rest) = document.split_once(&begin).expect("the mark where the claims begin");
    let (_, after) = rest.split_once(end).expect("the mark where they end");
    format!("{before}{begin}\n{content}\n{end}{after}")
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn manifest() -> Manifest {
    toml::from_str(&fs::read_to_string(root().join("tests/claims.toml")).expect("the manifest"))
        .expect("a manifest of claims")
}

#[test]
fn every_claim_has_tests_that_are_there() {
    let checked = Sources::read(&root()).check_all(&manifest());
    assert_eq!(checked, Ok(()));
}

#[test]
fn the_documents_say_what_the_manifest_says() {
    let manifest = manifest();
    for (document, parts) in [
        ("docs/reliability.md", vec![("measured", measured(&manifest))]),
        (
            "docs/guarantees.md",
            vec![
                ("guarantees", guarantees(&manifest)),
                ("file", promises_of_files(&manifest)),
                ("serve", list(&manifest.serve)),
                ("mount", list(&manifest.mount)),
            ],
        ),
    ] {
        let path = root().join(document);
        let text = fs::read_to_string(&path).expect("the document");
        let new = parts.iter().fold(text.clone(), |text, (name, part)| renew(&text, name, part));
        if std::env::var_os("NFSW_CLAIMS_WRITE").is_some() {
            fs::write(&path, new).expect("the document can be written");
        } else {
            assert!(
                text == new,
                "{document} is not what tests/claims.toml gives; NFSW_CLAIMS_WRITE=1 renews it"
            );
        }
    }
}

#[test]
fn a_claim_without_a_test_is_refused() {
    let source = "#[test]\nfn quick() {}\n#[test]\n#[ignore = \"slow\"]\nfn slow() {}\nfn helper() {}\n\
        misbehaviours! {\n    row: COMMAND, LIE, MUST;\n}\n";
    let sources = Sources(BTreeMap::from([
        ("/tests/one".to_owned(), source.to_owned()),
        ("/crates/x/one".to_owned(), String::new()),
    ]));
    let claim = |tests: &[&str]| Manifest {
        guarantee: vec![Claim {
            text: "something".to_owned(),
            tests: tests.iter().map(ToString::to_string).collect(),
        }],
        file: vec![],
        serve: vec![],
        mount: vec![],
        measured: vec![],
    };
    let check = |tests: &[&str]| sources.check_all(&claim(tests));
    assert_eq!(check(&["tests/one::quick"]), Ok(()));
    assert_eq!(check(&["tests/one::row", "tests/one::slow"]), Ok(()));
    assert_eq!(check(&["tests/one::*"]), Ok(()));
    for tests in [
        &[][..],
        &["tests/one::helper"],
        &["tests/one::gone"],
        &["tests/one::slow"],
        &["tests/two::quick"],
        &["one::quick"],
        &["crates/x/one::*"],
        &["quick"],
    ] {
        assert!(check(tests).is_err(), "{tests:?}");
    }
    let row = |tests: &str, long_tests: &str| Measured {
        what: "something".to_owned(),
        every_run: "10".to_owned(),
        long: "100".to_owned(),
        tests: vec![tests.to_owned()],
        long_tests: vec![long_tests.to_owned()],
    };
    let check = |row| {
        sources.check_all(&Manifest {
            guarantee: vec![],
            file: vec![],
            serve: vec![],
            mount: vec![],
            measured: vec![row],
        })
    };
    assert_eq!(check(row("tests/one::quick", "tests/one::slow")), Ok(()));
    assert!(check(row("tests/one::slow", "tests/one::slow")).is_err());
    assert!(check(row("tests/one::quick", "tests/one::quick")).is_err());
}
