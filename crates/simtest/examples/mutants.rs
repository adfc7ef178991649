//! Plants each bug of `env::MUTANTS` in turn and lives lives until one of them finds it: one that
//! goes wrong with the bug and does not without. `scripts/sim-mutants` runs it; arguments: seeds
//! at most (2000), then names of mutants (all). A bug is hunted where it can show (`hunt`); with
//! `aim=NAME`, `aim=usual`, `faults=A,B` or `mons=N` there instead. `first=N` begins at another seed.
//! `minimise` makes the first life that finds it smaller. Prints a table; exit code 1 if one is
//! not found. The bug `none` is no bug: its lives must not go wrong.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use simtest::{Aim, Fault, Settings, Sum, minimise, run, timeline, try_live};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Failed lives that may be looked at again without the bug, a mutant.
const AGAIN_MAX: usize = 40;
/// How long a life is made smaller.
const SMALLER: Duration = Duration::from_secs(120);

/// Where a bug can show: what goes wrong in the lives that look for it.
fn hunt(mutant: &str) -> &'static str {
    match mutant {
        "ack-early" | "promise-early" | "tell-unsettled" => "aim=unflushed",
        "stale-interval" | "stale-peering" => "aim=intervals",
        "serve-after-lease" => "aim=island",
        "skip-min-size" => "aim=thin",
        "no-replay" | "replay-twice" => "aim=resets",
        "no-checksum" => "faults=rot aim=resets",
        "mon-early" => "faults=mon,power,osd",
        _ => "aim=usual",
    }
}

/// Settings from words like those of `hunt`.
fn settings(words: &str) -> Settings {
    let mut settings = Settings { short: true, ..Settings::default() };
    for word in words.split_whitespace() {
        match word.split_once('=') {
            Some(("aim", "usual")) => {}
            Some(("aim", name)) => settings.aim = Some(Aim::named(name).expect("an aim")),
            Some(("faults", names)) => {
                let named = |name| Fault::named(name).expect("a fault");
                settings.faults = Some(names.split(',').map(named).collect());
            }
            Some(("mons", mons)) => settings.mons = Some(mons.parse().expect("a number")),
            Some(("long", _)) => settings.short = false,
            _ => panic!("{word}: not one of aim=, faults=, mons=, long="),
        }
    }
    settings
}

/// What a failure says, short enough for a table's cell.
fn cell(what: &str) -> String {
    let mut lines = what.lines().map(|line| line.replace('|', "/"));
    let (place, words) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let file = place.split("/src/").nth(1).unwrap_or(&place);
    let file = file.split(':').next().unwrap_or_default();
    let words: String = words.chars().take(90).collect();
    format!("{file}: {words}")
}

fn make_smaller(seed: u64, settings: &Settings) {
    let deadline = Instant::now() + SMALLER;
    let Some(small) = minimise(seed, settings, deadline, &mut |text| eprintln!("{text}")) else {
        return eprintln!("life {seed} did not go wrong again");
    };
    let faults = small.diary.faults();
    eprintln!(
        "after {} lives {} misfortunes are left: {}",
        small.lives,
        faults.len(),
        faults.join(" ")
    );
    eprintln!("{}\n{}", small.failure.what, timeline::text(&small.diary));
}

fn main() -> ExitCode {
    let asked: Targets =
        std::env::var("RUST_LOG").as_deref().unwrap_or("error").parse().expect("RUST_LOG");
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).without_time();
    tracing_subscriber::registry().with(asked).with(lines).init();
    let mut args = std::env::args().skip(1);
    let seeds: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let (mut given, mut chosen): (Vec<String>, Vec<String>) =
        args.partition(|arg| arg.contains('='));
    let mut start = 1;
    given.retain(|word| match word.strip_prefix("first=") {
        Some(first) => {
            start = first.parse().expect("a number");
            false
        }
        None => true,
    });
    let smaller =
        chosen.iter().position(|word| word == "minimise").map(|at| chosen.remove(at)).is_some();
    println!(
        "| mutant | what is wrong | lives | found by seed | of lives | simulated | found as |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut all_found = true;
    if chosen.iter().any(|one| one == "none") {
        let sound = settings(&given.join(" "));
        let begun = Instant::now();
        let sum: Sum = run(start..start + seeds, &sound, None, |_, _| true);
        for failure in &sum.failures {
            println!("seed {} of {}: {}", failure.seed, given.join(" "), failure.what);
        }
        if let (true, Some(failure)) = (smaller, sum.failures.first()) {
            make_smaller(failure.seed, &sound);
        }
        println!(
            "{} lives, {} s simulated, {} answers, {} went wrong, {:?}",
            sum.lives,
            sum.time.as_secs(),
            sum.answers,
            sum.failures.len(),
            begun.elapsed()
        );
        return if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    for (name, what) in env::MUTANTS {
        if !(chosen.is_empty() || chosen.iter().any(|one| one == name)) {
            continue;
        }
        let begun = Instant::now();
        let words = if given.is_empty() { hunt(name).to_owned() } else { given.join(" ") };
        let sound = settings(&words);
        let settings = Settings { mutant: name, ..sound.clone() };
        let (mut first, mut lives, mut time, mut again) = (start, 0, 0, 0);
        let found = loop {
            let sum: Sum = run(first..start + seeds, &settings, None, |_, result| result.is_ok());
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
                println!("| `{name}` | {what} | {words} | {seed} | {lives} | {time} s | {how} |");
                if smaller {
                    make_smaller(seed, &settings);
                }
            }
            None => {
                all_found = false;
                println!("| `{name}` | {what} | {words} | **none** | {lives} | {time} s | |");
            }
        }
        eprintln!("{name}: {:?}, {again} lives went wrong without it, too", begun.elapsed());
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
