//! `loligo sim`: whole clusters under a virtual clock, broken in many ways, from seeds.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;
use simtest::diary::Diary;
use simtest::{Aim, Fault, Settings, timeline};

use crate::cli::SimArgs;
use crate::failure::Failure;
use crate::output::show;

fn settings(args: &SimArgs) -> Result<Settings, Failure> {
    let mut settings = Settings {
        osds: args.osds,
        mons: args.mons,
        osds_per_process: args.osds_per_process,
        erasure: args.erasure,
        short: args.short,
        ..Settings::default()
    };
    #[cfg(feature = "mutants")]
    if let Some(mutant) = &args.mutant {
        let mut names = env::MUTANTS.into_iter().map(|(name, _)| name);
        settings.mutant = names.find(|name| name == mutant).unwrap_or_default();
    }
    if let Some(name) = &args.aim {
        let aim = Aim::named(name);
        let wrong = || format!("--aim {name}: not one of {}", Aim::names().join(", "));
        settings.aim = Some(aim.ok_or_else(|| Failure::new(wrong()))?);
    }
    if let Some(cut) = &args.cut {
        settings.cut = cut.parse().map_err(|why| Failure::new(format!("--cut: {why}")))?;
    }
    let Some(names) = &args.faults else { return Ok(settings) };
    let faults = settings.faults.insert(BTreeSet::new());
    for name in names.iter().filter(|name| *name != "none") {
        let fault = Fault::named(name).ok_or_else(|| {
            let known: Vec<&str> = Fault::ALL.iter().map(|(_, name)| *name).collect();
            Failure::new(format!("--faults {name}: not one of none, {}", known.join(", ")))
        })?;
        faults.insert(fault);
    }
    Ok(settings)
}

/// The command that lives a life again: all that decides over it.
fn again(args: &SimArgs, seed: u64, cut: &str) -> String {
    let mut words = format!("loligo sim --seed {seed} --lives 1");
    if let Some(osds) = args.osds {
        words += &format!(" --osds {osds}");
    }
    if let Some(mons) = args.mons {
        words += &format!(" --mons {mons}");
    }
    if let Some(count) = args.osds_per_process {
        words += &format!(" --osds-per-process {count}");
    }
    if let Some(faults) = &args.faults {
        words += &format!(" --faults {}", faults.join(","));
    }
    if let Some(aim) = &args.aim {
        words += &format!(" --aim {aim}");
    }
    #[cfg(feature = "mutants")]
    if let Some(mutant) = &args.mutant {
        words += &format!(" --mutant {mutant}");
    }
    for (given, word) in [(args.erasure, " --erasure"), (args.short, " --short")] {
        words += if given { word } else { "" };
    }
    if !cut.is_empty() {
        words += &format!(" --cut {cut}");
    }
    words
}

fn write_timeline(file: &Path, seed: u64, diary: &Diary) -> Result<(), Failure> {
    let content = match file.extension().and_then(|end| end.to_str()) {
        Some("html") => timeline::html(&format!("Life {seed}"), diary),
        Some("svg") => timeline::svg(diary),
        _ => timeline::text(diary),
    };
    let wrong = |why: std::io::Error| Failure::new(format!("--timeline {}: {why}", file.display()));
    std::fs::write(file, content).map_err(wrong)
}

/// Makes a life that goes wrong smaller as long as `minutes` allow; how it goes wrong then.
fn make_smaller(
    args: &SimArgs,
    settings: &Settings,
    seed: u64,
    time: Duration,
) -> Result<String, Failure> {
    let mut told = |text: &str| {
        if !args.json {
            show!("{text}");
        }
    };
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let deadline = Instant::now() + time.min(YEAR);
    let small = simtest::minimise(seed, settings, deadline, &mut told);
    let small = small.ok_or_else(|| Failure::new(format!("life {seed} did not go wrong again")))?;
    let cut = small.cut.to_string();
    if args.json {
        let line = json!({
            "seed": seed,
            "cut": cut,
            "lives": small.lives,
            "faults": small.diary.faults(),
            "what": small.failure.what,
        });
        show!("{line}");
    } else {
        let faults = small.diary.faults();
        show!(
            "after {} lives: {} misfortunes are left: {}",
            small.lives,
            faults.len(),
            faults.join(" ")
        );
        show!("{}", small.failure.what);
    }
    if let Some(file) = &args.timeline {
        write_timeline(file, seed, &small.diary)?;
    }
    Ok(again(args, seed, &cut))
}

/// Lives lives until the time is over or one goes wrong.
pub(crate) fn simulate(args: &SimArgs) -> Result<(), Failure> {
    if std::env::var_os("LOLIGO_LOG").is_some() {
        crate::logging::start();
    }
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
    let sum = simtest::run(args.seed..end, &settings, deadline, |seed, result| match result {
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
            "{} lives, {time:.0} s simulated in {real:.1} s ({:.0} times faster), {} answers judged, {} unclear, {} events",
            sum.lives,
            time / real.max(0.001),
            sum.answers,
            sum.unclear,
            sum.events
        );
    }
    let Some(failure) = sum.failures.first() else {
        if sum.lives == 0 {
            let why =
                "no life was lived: --minutes are too few, or there is no such --seed any more";
            return Err(Failure::new(why));
        }
        if !sum.is_clear() {
            let (unclear, answers) = (sum.unclear, sum.answers);
            let why = format!("{unclear} answers could not be judged, beside {answers} that were");
            return Err(Failure::new(format!("{why}: too many to say that nothing is wrong")));
        }
        if let (Some(file), Some(1)) = (&args.timeline, args.lives) {
            let (_, diary) = simtest::live_with_diary(args.seed, &settings);
            write_timeline(file, args.seed, &diary)?;
        }
        return Ok(());
    };
    let seed = failure.seed;
    if !args.json {
        show!("\nseed {seed}: the cluster broke its word: {}", failure.what);
    }
    let again = if args.minimise {
        make_smaller(args, &settings, seed, minutes)?
    } else {
        if let Some(file) = &args.timeline {
            let (_, diary) = simtest::live_with_diary(seed, &settings);
            write_timeline(file, seed, &diary)?;
        }
        again(args, seed, args.cut.as_deref().unwrap_or_default())
    };
    Err(Failure::new(format!("seed {seed} went wrong; again: {again}")))
}
