//! `loligo sim --minimise` as users run it, on a life that goes wrong as a bug is planted in it:
//! `cargo test --release -p loligo --features mutants --test sim`.

use std::process::{Command, Output};

use serde_json::Value;

fn loligo(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loligo"));
    command.args(words.split_whitespace()).output().expect("it runs")
}

/// What a run of `loligo sim --json` found, from its last line.
fn findings(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let sums: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let failures = sums.iter().find_map(|sum| sum["failures"].as_array()).expect("a sum");
    failures.iter().filter_map(|failure| failure["what"].as_str()).map(str::to_owned).collect()
}

#[test]
fn a_life_that_goes_wrong_is_made_smaller_and_lived_again() {
    let lives =
        "sim --seed 1 --lives 40 --aim thin --short --mutant skip-min-size --json --minutes 1";
    let output = loligo(&format!("{lives} --minimise"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let small: Value = serde_json::from_str(text.lines().last().expect("lines")).expect("JSON");
    let left = small["faults"].as_array().expect("misfortunes");
    assert!(left.len() <= 2, "{small}");
    assert_ne!(small["cut"], "", "{small}");

    let (_, again) = errors.split_once("again: loligo ").expect("a command");
    let output = loligo(&format!("{} --json", again.trim()));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(findings(&output), [small["what"].as_str().expect("words")], "{again}");
    // Without the bug nothing is wrong with it.
    let (sound, _) = again.split_once("--mutant skip-min-size").expect("the bug");
    let cut = again.split_once("--cut ").map_or(String::new(), |(_, cut)| format!("--cut {cut}"));
    let output = loligo(&format!("{sound} --short {cut} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}
