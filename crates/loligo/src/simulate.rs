//! `loligo sim`: whole clusters under a virtual clock, broken in many ways, from seeds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;
use simtest::{Fault, Settings};

use crate::cli::SimArgs;
use crate::failure::Failure;
use crate::output::show;

fn settings(args: &SimArgs) -> Result<Settings, Failure> {
    let mut settings =
        Settings {
            osds: args.osds,
            mons: args.mons,
            erasure: args.erasure,
            short: args.short,
            ..Settings::default()
        };
    let Some(names) = &args.faults else { return Ok(settings) };
    settings.faults.clear();
    for name in names.iter().filter(|name| *name != "none") {
        let fault = Fault::named(name).ok_or_else(|| {
            let known: Vec<&str> = Fault::ALL.iter().map(|(_, name)| *name).collect();
            Failure::new(format!("--faults {name}: not one of none, {}", known.join(", ")))
        })?;
        settings.faults.insert(fault);
    }
    Ok(settings)
}

/// The command that lives a life again: all that decides over it.
fn again(args: &SimArgs, seed: u64) -> String {
    let mut words = format!("loligo sim --seed {seed} --lives 1");
    if let Some(osds) = args.osds {
        words += &format!(" --osds {osds}");
    }
    if args.mons != 1 {
        words += &format!(" --mons {}", args.mons);
    }
    if let Some(faults) = &args.faults {
        words += &format!(" --faults {}", faults.join(","));
    }
    for (given, word) in [(args.erasure, " --erasure"), (args.short, " --short")] {
        words += if given { word } else { "" };
    }
    words
}

/// Lives lives until the time is over or one goes wrong.
pub(crate) fn simulate(args: &SimArgs) -> Result<(), Failure> {
    let settings = settings(args)?;
    let begun = Instant::now();
    let minutes = Duration::try_from_secs_f64(args.minutes * 60.0);
    let minutes = minutes.map_err(|e| Failure::new(format!("--minutes: {e}")))?;
    let deadline = begun.checked_add(minutes);
    let end = args.seed.saturating_add(args.lives.unwrap_or(u64::MAX));
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new_spinner(),
        false => ProgressBar::hidden(),
    };
    let (mut lives, mut simulated) = (0u64, Duration::ZERO);
    let sum = simtest::run(args.seed..end, &settings, deadline, |seed, result| {
        match result {
            Ok(life) => {
                lives += 1;
                simulated += life.time;
                bar.set_message(format!("{lives} lives, {} s simulated", simulated.as_secs()));
                bar.tick();
                if args.json {
                    let line = json!({
                        "seed": seed,
                        "reads": life.reads,
                        "writes": life.writes,
                        "events": life.events,
                        "seconds": life.time.as_secs_f64(),
                        "trace_hash": format!("{:016x}", life.trace_hash),
                    });
                    show!("{line}");
                }
                true
            }
            Err(_) => false,
        }
    });
    bar.finish_and_clear();
    let (time, real) = (sum.time.as_secs_f64(), begun.elapsed().as_secs_f64());
    if args.json {
        let failures: Vec<_> =
            sum.failures.iter().map(|f| json!({"seed": f.seed, "what": f.what})).collect();
        let line = json!({
            "lives": sum.lives,
            "seconds": time,
            "real_seconds": real,
            "answers_judged": sum.answers,
            "answers_unclear": sum.unclear,
            "events": sum.events,
            "failures": failures,
        });
        show!("{line}");
    } else {
        show!(
            "{} lives, {time:.0} s simulated in {real:.1} s ({:.0} times faster), {} answers judged, {} events",
            sum.lives,
            time / real.max(0.001),
            sum.answers,
            sum.events
        );
    }
    let Some(failure) = sum.failures.first() else { return Ok(()) };
    if !args.json {
        show!("\nseed {}: the cluster broke its word: {}", failure.seed, failure.what);
    }
    let again = again(args, failure.seed);
    Err(Failure::new(format!("seed {} went wrong; again: {again}", failure.seed)))
}
