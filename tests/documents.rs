//! Links between the documents lead to files and headings that are there.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The pages of a directory, and the documents beside the workspace's Cargo.toml.
fn pages(root: &Path) -> Vec<PathBuf> {
    let markdown = |directory: &Path| {
        let entries = fs::read_dir(directory).expect("a directory of documents");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect::<Vec<_>>()
    };
    [markdown(root), markdown(&root.join("docs"))].concat()
}

/// A page without its code, in which brackets are no links.
fn prose(page: &str) -> String {
    let blocks = page.split("```").step_by(2);
    blocks.flat_map(|block| block.split('`').step_by(2)).collect()
}

/// The targets of all links: what stands in `](...)`.
fn links(page: &str) -> Vec<String> {
    let ends = prose(page);
    let parts = ends.split("](").skip(1);
    parts.filter_map(|part| part.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a page, by GitHub's rule and mdBook's: small letters, hyphens for spaces, no punctuation.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect::<String>().to_lowercase()
    };
    headings.map(slug).collect()
}

/// Says what is wrong with a link of a page.
fn check(root: &Path, page: &Path, link: &str) -> Result<(), String> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let directory = page.parent().expect("pages lie in directories");
    let target = if file.is_empty() { page.to_owned() } else { directory.join(file) };
    let target = target.canonicalize().map_err(|error| format!("{link}: {error}"))?;
    if directory == root.join("docs") && !target.starts_with(root.join("docs")) {
        return Err(format!("{link} leads out of the book"));
    }
    let Some(anchor) = anchor else {
        return Ok(());
    };
    let text = fs::read_to_string(&target).map_err(|error| format!("{link}: {error}"))?;
    match anchors(&text).iter().any(|there| there == anchor) {
        true => Ok(()),
        false => Err(format!("{link}: no such heading")),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().expect("the workspace")
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages(&root()) {
        for link in links(&fs::read_to_string(&page).expect("a page")) {
            seen += 1;
            if let Err(what) = check(&root(), &page, &link) {
                wrong.push(format!("{}: {what}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 30, "only {seen} links were found");
}

#[test]
fn a_link_to_nothing_is_found() {
    let page = root().join("docs/guarantees.md");
    let check = |link| check(&root(), &page, link);
    assert_eq!(links("see [a](b.md#c), `[d](e)`, [f](g)"), ["b.md#c", "g"]);
    assert_eq!(anchors("# What you can rely on\n```sh\n# no heading\n```\n"), ["what-you-can-rely-on"]);
    assert_eq!(check("guide.md"), Ok(()));
    assert_eq!(check("#what-you-can-rely-on"), Ok(()));
    assert!(
        check("absent.md").is_err() && check("guide.md#absent").is_err() && check("../README.md").is_err()
    );
}

#[test]
fn the_book_has_every_page() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the table of contents");
    for page in pages(&root()) {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        if page.starts_with(&docs) && name != "SUMMARY.md" {
            assert!(summary.contains(&format!("({name})")), "docs/SUMMARY.md lacks {name}");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).expect("README.md").lines().count();
    assert!(lines <= 140, "README.md has {lines} lines");
}
