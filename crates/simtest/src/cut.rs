//! Parts left out of a life: with them the same seed gives a smaller one (`minimise.rs`).
//!
//! ```text
//! without=osd+mon,skip=power-0-2+osd-1-4,seconds=3.5,clients=1,objects=2,again=7
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Fault, Load, Mischief};

/// See the module. Nothing is left out by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cut {
    /// Kinds of misfortunes.
    pub without: BTreeSet<Fault>,
    /// Single misfortunes, by their names: kind, line and number.
    pub skip: BTreeSet<String>,
    /// Things go wrong for so long at most.
    pub time: Option<Duration>,
    /// So many clients at most.
    pub clients: Option<u32>,
    /// So many objects at most.
    pub objects: Option<u64>,
    /// Other chances where the seed's plan leaves them: delays, and what clients do.
    pub again: u64,
}

impl Cut {
    pub(crate) fn skips(&self, name: &str) -> bool {
        self.skip.contains(name)
    }

    pub(crate) fn apply_to_mischief(&self, mischief: &mut Mischief) {
        mischief.faults.retain(|fault| !self.without.contains(fault));
        mischief.time = self.time.map_or(mischief.time, |time| time.min(mischief.time));
    }

    pub(crate) fn apply_to_load(&self, load: &mut Load) {
        load.clients = self.clients.map_or(load.clients, |most| most.clamp(1, load.clients.max(1)));
        load.objects = self.objects.map_or(load.objects, |most| most.clamp(1, load.objects));
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if !self.without.is_empty() {
            let names: Vec<&str> = self.without.iter().map(|fault| fault.name()).collect();
            words.push(format!("without={}", names.join("+")));
        }
        if !self.skip.is_empty() {
            let names: Vec<&str> = self.skip.iter().map(String::as_str).collect();
            words.push(format!("skip={}", names.join("+")));
        }
        words.extend(self.time.map(|time| format!("seconds={}", time.as_secs_f64())));
        words.extend(self.clients.map(|clients| format!("clients={clients}")));
        words.extend(self.objects.map(|objects| format!("objects={objects}")));
        if self.again != 0 {
            words.push(format!("again={}", self.again));
        }
        f.write_str(&words.join(","))
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let mut cut = Cut::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = || {
                format!("{word:?} is none of without=, skip=, seconds=, clients=, objects=, again=")
            };
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            match name {
                "without" => {
                    for kind in value.split('+') {
                        let fault =
                            Fault::named(kind).ok_or_else(|| format!("no fault {kind:?}"))?;
                        cut.without.insert(fault);
                    }
                }
                "skip" => cut.skip.extend(value.split('+').map(str::to_owned)),
                "seconds" => {
                    let seconds: f64 = value.parse().map_err(|_| wrong())?;
                    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
                    cut.time = Some(time);
                }
                "clients" => cut.clients = Some(value.parse().map_err(|_| wrong())?),
                "objects" => cut.objects = Some(value.parse().map_err(|_| wrong())?),
                "again" => cut.again = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_read_as_it_is_written() {
        let text = "without=osd+mon,skip=osd-1-4+power-0-2,seconds=3.5,clients=1,objects=2,again=7";
        let cut: Cut = text.parse().unwrap();
        assert_eq!(cut.to_string(), text);
        assert_eq!(Cut::default().to_string(), "");
        for bad in ["without=x", "seconds=-1", "clients", "more=1"] {
            assert!(bad.parse::<Cut>().is_err(), "{bad}");
        }
    }
}
