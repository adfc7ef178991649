//! Plants each bug of `env::MUTANTS` in turn and lives lives until one of them finds it: one that
//! goes wrong with the bug and does not without. `scripts/sim-mutants` runs it; arguments: seeds
//! at most (2000), then names of mutants (all), `aim=NAME` for lives of one aim only. Prints a table; exit code 1 if one is not found.

use std::process::ExitCode;
use std::time::Instant;

use simtest::{Aim, Settings, Sum, run, try_live};

/// Failed lives that may be looked at again without the bug, a mutant.
const AGAIN_MAX: usize = 40;

/// What a failure says, short enough for a table's cell.
fn cell(what: &str) -> String {
    let mut lines = what.lines().map(|line| line.replace('|', "/"));
    let (place, words) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let file = place.split("/src/").nth(1).unwrap_or(&place);
    let file = file.split(':').next().unwrap_or_default();
    let words: String = words.chars().take(90).collect();
    format!("{file}: {words}")
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let seeds: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let (aims, chosen): (Vec<String>, Vec<String>) = args.partition(|arg| arg.contains('='));
    let aim = aims.iter().find_map(|arg| Aim::named(arg.strip_prefix("aim=")?));
    let sound = Settings { aim, ..Settings::default() };
    println!("| mutant | what is wrong | found by seed | lives | simulated | found as |");
    println!("|---|---|---|---|---|---|");
    let mut all_found = true;
    for (name, what) in env::MUTANTS {
        if !(chosen.is_empty() || chosen.iter().any(|one| one == name)) {
            continue;
        }
        let begun = Instant::now();
        let settings = Settings { mutant: name, ..sound.clone() };
        let (mut first, mut lives, mut time, mut again) = (1, 0, 0, 0);
        let found = loop {
            let sum: Sum = run(first..seeds + 1, &settings, None, |_, result| result.is_ok());
            lives += sum.lives + sum.failures.len() as u64;
            time += sum.time.as_secs();
            let Some(last) = sum.failures.last() else { break None };
            first = last.seed + 1;
            // A life that goes wrong without the bug, too, has found something else.
            let passes = |seed| try_live(seed, &sound).is_ok();
            if let Some(failure) = sum.failures.iter().find(|failure| passes(failure.seed)) {
                break Some(failure.clone());
            }
            again += sum.failures.len();
            if again > AGAIN_MAX {
                break None;
            }
        };
        match found {
            Some(failure) => {
                let (seed, how) = (failure.seed, cell(&failure.what));
                println!("| `{name}` | {what} | {seed} | {lives} | {time} s | {how} |");
            }
            None => {
                all_found = false;
                println!("| `{name}` | {what} | **none** | {lives} | {time} s | |");
            }
        }
        eprintln!("{name}: {:?}, {again} lives went wrong without it, too", begun.elapsed());
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
