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
    format!(
        "{place}: {}",
        words.chars().filter(|c| plain(*c)).collect::<String>()
    )
}

/// Lives a life with its diary.
pub fn live_with_diary(seed: u64, settings: &Settings) -> (Option<Failure>, Diary) {
    diary::keep();
    let failure = try_live(seed, settings).err();
    (failure, diary::take())
}

struct Search<'a> {
    seed: u64,
    settings: &'a Settings,
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
            let cut = Cut {
                again: self.best.cut.again + chance,
                ..cut.clone()
            };
            let settings = Settings {
                cut: cut.clone(),
                ..self.settings.clone()
            };
            let (failure, diary) = live_with_diary(self.seed, &settings);
            self.best.lives += 1;
            let lives = self.best.lives;
            if let Some(failure) = failure.filter(|failure| way(&failure.what) == self.way) {
                told(&format!("life {lives}: still goes wrong with {cut}"));
                self.best = Small {
                    cut,
                    failure,
                    diary,
                    lives,
                };
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
            let try_one = |time: Duration| Cut {
                time: Some(time),
                ..self.best.cut.clone()
            };
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
            let cut = Cut {
                clients: Some(clients),
                ..self.best.cut.clone()
            };
            if self.holds(cut, told) {
                break;
            }
        }
        for objects in [1, 2, 4] {
            let cut = Cut {
                objects: Some(objects),
                ..self.best.cut.clone()
            };
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
        let mut begins = self
            .lines
            .iter()
            .filter(|(_, what)| matches!(what, What::Begins(_)));
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
    let (failure, diary) = live_with_diary(seed, settings);
    let failure = failure?;
    let cut = settings.cut.clone();
    let way = way(&failure.what);
    let best = Small {
        cut,
        failure,
        diary,
        lives: 1,
    };
    let mut search = Search {
        seed,
        settings,
        way,
        deadline,
        best,
    };
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

    #[test]
    fn a_way_is_the_place_and_the_words() {
        let one = "panicked at crates/simtest/src/workload.rs:31:9:\nobject3: no order of 4 ops";
        let other = "panicked at crates/simtest/src/workload.rs:32:9:\nobject11: no order of 5 ops";
        assert_eq!(way(one), way(other));
        assert_ne!(
            way(one),
            way("panicked at crates/simtest/src/cluster.rs:1:1:\nnot clean")
        );
    }
}
