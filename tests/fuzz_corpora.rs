//! What fuzzing has found interesting, run again: the bodies of the fuzz targets over their committed corpora.

use std::{fs, path::Path};

#[expect(unreachable_pub, reason = "in fuzz/ the same file is a library")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn every_corpus_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, _) in fuzz::targets() {
        let mut inputs: Vec<_> = fs::read_dir(corpora.join(name))
            .unwrap_or_else(|error| panic!("the corpus of {name}: {error}"))
            .map(|entry| entry.expect("readable").path())
            .collect();
        inputs.sort();
        assert!(inputs.len() >= 5, "the corpus of {name} is not there");
        for input in inputs {
            // With the panic's message, this says what to look at.
            println!("{}", input.display());
            fuzz::run(name, &fs::read(&input).expect("readable"));
        }
    }
}

#[test]
fn every_target_has_a_program() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(programs.join("Cargo.toml")).expect("readable");
    let mut names: Vec<_> = fuzz::targets().map(|(name, _)| name).collect();
    for name in &names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is in no manifest");
        let program = fs::read_to_string(programs.join(format!("fuzz_targets/{name}.rs"))).expect("readable");
        assert!(program.contains(&format!("run(\"{name}\", data)")), "the program of {name} runs another");
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a name stands for one target");
    assert_eq!(manifest.matches("[[bin]]").count(), all, "a program runs no target");
}
