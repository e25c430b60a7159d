//! What fuzzing has found interesting, run again: the bodies of the fuzz targets over their committed corpora.

use std::{fs, path::Path};

#[expect(unreachable_pub, reason = "in fuzz/ the same file is a library")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn every_corpus_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, run) in fuzz::TARGETS {
        let mut inputs: Vec<_> = fs::read_dir(corpora.join(name))
            .unwrap_or_else(|error| panic!("the corpus of {name}: {error}"))
            .map(|entry| entry.expect("readable").path())
            .collect();
        inputs.sort();
        assert!(inputs.len() >= 5, "the corpus of {name} is not there");
        for input in inputs {
            // With the panic's message, this says what to look at.
            println!("{}", input.display());
            run(&fs::read(&input).expect("readable"));
        }
    }
}
