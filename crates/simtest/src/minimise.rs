//! Makes a life that goes wrong smaller: kinds of misfortunes, single ones, time, clients and
//! objects are left out as long as it still goes wrong in the same way.
//!
//! A change of anything shifts the chances of all that follows, so each smaller life is tried with
//! a few other chances too ([`Cut::again`]).

use std::time::{Duration, Instant};

use crate::diary::{self, Diary, What};
use crate::{Cut, Failure, Settings, try_live};

/// Other chances that a smaller life is given.
const CHANCES: u64 = 3;

/// A life that goes wrong, made smaller.
#[derive(Debug)]
pub struct Small {
    /// What is left out.
    pub cut: Cut,
    /// How it goes wrong now.
    pub failure: Failure,
    /// What happened in it.
    pub diary: Diary,
    /// Lives lived to find it.
    pub lives: u64,
}

/// What two failures must share to be the same one: where they were found, and in what words but
/// for numbers.
fn way(what: &str) -> String {
    let mut lines = what.lines();
    let place = lines.next().unwrap_or_default();
    let place = place.split(".rs:").next().unwrap_or_default();
    let words: String = lines.next().unwrap_or_default().chars().take(60).collect();
    let plain = |c: char| !c.is_ascii_digit() && c != '.';
    format!("{place}: {}", words.chars().filter(|c| plain(*c)).collect::<String>())
}

/// Lives a life with its diary.
pub fn live_with_diary(seed: u64, settings: &Settings) -> (Option<Failure>, Diary) {
    diary::keep();
    let failure = try_live(seed, settings).err();
    (failure, diary::take())
}

struct Search<'a> {
    /// Lives the life with parts left out.
    live: &'a dyn Fn(Cut) -> (Option<Failure>, Diary),
    way: String,
    deadline: Instant,
    best: Small,
}

impl Search<'_> {
    fn in_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    /// Whether the life with this cut still goes wrong; if so it is the best so far.
    fn holds(&mut self, cut: Cut, told: &mut dyn FnMut(&str)) -> bool {
        if cut == self.best.cut {
            return true;
        }
        for chance in 0..CHANCES {
            if !self.in_time() {
                return false;
            }
            let cut = Cut { again: self.best.cut.again + chance, ..cut.clone() };
            let (failure, diary) = (self.live)(cut.clone());
            self.best.lives += 1;
            let lives = self.best.lives;
            if let Some(failure) = failure.filter(|failure| way(&failure.what) == self.way) {
                told(&format!("life {lives}: still goes wrong with {cut}"));
                self.best = Small { cut, failure, diary, lives };
                return true;
            }
        }
        false
    }

    fn leave_out_kinds(&mut self, told: &mut dyn FnMut(&str)) {
        for kind in self.best.diary.kinds.clone() {
            let mut cut = self.best.cut.clone();
            if cut.without.insert(kind) {
                self.holds(cut, told);
            }
        }
    }

    fn shorten(&mut self, told: &mut dyn FnMut(&str)) {
        while let Some(time) = self.best.diary.time_of_faults() {
            let before = self.best.cut.time.unwrap_or(time).min(time);
            let shorter = [0.3, 0.6, 0.85].map(|part| before.mul_f64(part));
            let try_one = |time: Duration| Cut { time: Some(time), ..self.best.cut.clone() };
            let cuts = shorter.map(try_one);
            if before < Duration::from_millis(100)
                || !cuts.into_iter().any(|cut| self.holds(cut, told))
            {
                return;
            }
        }
    }

    fn leave_out_clients(&mut self, told: &mut dyn FnMut(&str)) {
        for clients in 1..=2 {
            let cut = Cut { clients: Some(clients), ..self.best.cut.clone() };
            if self.holds(cut, told) {
                break;
            }
        }
        for objects in [1, 2, 4] {
            let cut = Cut { objects: Some(objects), ..self.best.cut.clone() };
            if self.holds(cut, told) {
                break;
            }
        }
    }

    /// Halves of the misfortunes, quarters, ..., single ones.
    fn leave_out_faults(&mut self, told: &mut dyn FnMut(&str)) {
        let mut parts = 2;
        loop {
            let names = self.best.diary.faults();
            if names.is_empty() || !self.in_time() {
                return;
            }
            let len = names.len().div_ceil(parts);
            let mut shrunk = false;
            for part in names.chunks(len) {
                let mut cut = self.best.cut.clone();
                cut.skip.extend(part.iter().cloned());
                shrunk |= self.holds(cut, told);
            }
            if !shrunk && len == 1 {
                return;
            }
            parts = if shrunk { 2 } else { parts * 2 };
        }
    }
}

impl Diary {
    /// Names of the misfortunes, in order.
    pub fn faults(&self) -> Vec<String> {
        let name = |(_, what): &(Duration, What)| match what {
            What::Begins(name) => Some(name.clone()),
            _ => None,
        };
        self.lines.iter().filter_map(name).collect()
    }

    /// From the first misfortune to the last one's beginning.
    fn time_of_faults(&self) -> Option<Duration> {
        let mut begins = self.lines.iter().filter(|(_, what)| matches!(what, What::Begins(_)));
        let first = begins.next()?.0;
        let last = begins.next_back().map_or(first, |(at, _)| *at);
        Some(last - first + Duration::from_secs(1))
    }
}

/// Makes the life of `seed` smaller until `deadline`; `None` if it does not go wrong. `told` hears
/// of each success.
pub fn minimise(
    seed: u64,
    settings: &Settings,
    deadline: Instant,
    told: &mut dyn FnMut(&str),
) -> Option<Small> {
    let live = |cut| live_with_diary(seed, &Settings { cut, ..settings.clone() });
    search(&live, settings.cut.clone(), deadline, told)
}

fn search(
    live: &dyn Fn(Cut) -> (Option<Failure>, Diary),
    cut: Cut,
    deadline: Instant,
    told: &mut dyn FnMut(&str),
) -> Option<Small> {
    let (failure, diary) = live(cut.clone());
    let failure = failure?;
    let way = way(&failure.what);
    let best = Small { cut, failure, diary, lives: 1 };
    let mut search = Search { live, way, deadline, best };
    loop {
        let before = search.best.cut.clone();
        search.leave_out_kinds(told);
        search.shorten(told);
        search.leave_out_clients(told);
        search.leave_out_faults(told);
        if search.best.cut == before || !search.in_time() {
            return Some(search.best);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn a_way_is_the_place_and_the_words() {
        let one = "panicked at crates/simtest/src/workload.rs:31:9:\nobject3: no order of 4 ops";
        let other = "panicked at crates/simtest/src/workload.rs:32:9:\nobject11: no order of 5 ops";
        assert_eq!(way(one), way(other));
        assert_ne!(way(one), way("panicked at crates/simtest/src/cluster.rs:1:1:\nnot clean"));
    }

    /// A life of three kinds of misfortunes, four times each, one a second. It goes wrong by one of
    /// them and one of another kind, by these only, and otherwise if the first one is missing.
    fn life(cut: &Cut) -> (Option<Failure>, Diary) {
        let mut diary =
            Diary { kinds: [Fault::Osd, Fault::Power, Fault::Mon].into(), ..Diary::default() };
        diary.kinds.retain(|kind| !cut.without.contains(kind));
        let time = cut.time.unwrap_or(Duration::from_secs(60));
        let mut at = Duration::ZERO;
        for number in 1..=4 {
            for kind in &diary.kinds {
                let name = format!("{}-0-{number}", kind.name());
                if !cut.skips(&name) && at < time {
                    diary.lines.push((at, What::Begins(name)));
                }
                at += Duration::from_secs(1);
            }
        }
        let happened = diary.faults();
        let has = |name: &str| happened.iter().any(|one| one == name);
        // Two clients, and what a change does to chances: by some it does not show.
        let shows = cut.clients != Some(1) && cut.again.is_multiple_of(2);
        let what = match (has("osd-0-3"), has("power-0-2")) {
            (true, true) if shows => format!("at crates/osd/src/a.rs:{}:1:\nlost", happened.len()),
            (false, _) => "at crates/osd/src/b.rs:1:1:\nelsewhere".to_owned(),
            _ => return (None, diary),
        };
        (Some(Failure { seed: 7, what }), diary)
    }

    #[test]
    fn what_does_not_matter_is_left_out() {
        let deadline = Instant::now() + Duration::from_secs(3600);
        let mut told = 0;
        let small =
            search(&|cut| life(&cut), Cut::default(), deadline, &mut |_| told += 1).unwrap();
        assert_eq!(small.diary.faults(), ["power-0-2", "osd-0-3"]);
        assert_eq!(small.cut.without, [Fault::Mon].into());
        assert_eq!((small.cut.clients, small.cut.objects), (Some(2), Some(1)));
        assert!(small.failure.what.contains("lost"), "{}", small.failure.what);
        assert_eq!(life(&small.cut).0.map(|failure| failure.what), Some(small.failure.what));
        assert!(told > 0);
    }

    #[test]
    fn a_life_that_does_not_go_wrong_is_not_made_smaller() {
        let cut = Cut { again: 1, ..Cut::default() };
        assert!(search(&|cut| life(&cut), cut, Instant::now(), &mut |_| {}).is_none());
    }
}
