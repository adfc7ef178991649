//! Plants each bug of `env::MUTANTS` in turn and lives lives until one of them finds it.
//! `scripts/sim-mutants` runs it; arguments: seeds at most (2000), then names of mutants (all).
//! Prints a table; exit code 1 if one is not found.

use std::process::ExitCode;
use std::time::Instant;

use simtest::{Settings, run};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let seeds: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let chosen: Vec<String> = args.collect();
    println!("| mutant | what is wrong | found by seed | lives | simulated | found as |");
    println!("|---|---|---|---|---|---|");
    let mut all_found = true;
    for (name, what) in env::MUTANTS {
        if !(chosen.is_empty() || chosen.iter().any(|one| one == name)) {
            continue;
        }
        let begun = Instant::now();
        let settings = Settings { mutant: name, ..Settings::default() };
        let sum = run(1..seeds + 1, &settings, None, |_, result| result.is_ok());
        let time = sum.time.as_secs();
        let lives = sum.lives;
        match sum.failures.first() {
            Some(failure) => {
                let mut lines = failure.what.lines().map(|line| line.replace('|', "/"));
                let (place, words) = (lines.next(), lines.next().unwrap_or_default());
                let place = place.unwrap_or_default();
                let file = place.split("/src/").nth(1).unwrap_or(&place);
                let file = file.split(':').next().unwrap_or_default();
                let words: String = words.chars().take(90).collect();
                let seed = failure.seed;
                println!("| `{name}` | {what} | {seed} | {lives} | {time} s | {file}: {words} |");
            }
            None => {
                all_found = false;
                println!("| `{name}` | {what} | **none** | {lives} | {time} s | |");
            }
        }
        eprintln!("{name}: {:?}", begun.elapsed());
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
