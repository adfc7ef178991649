//! From a map to text: `crushtool -d`.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::{CHOOSE_STEPS, SET_STEPS, TUNABLES, tunable};
use crate::map::{
    Algorithm, Bucket, ChooseArgs, CrushMap, RULE_ERASURE, RULE_REPLICATED, Rule, Step, Tunables,
    op,
};

/// A weight with three decimals.
struct Weight(u32);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0 as f32 / 65536.0)
    }
}

impl CrushMap {
    /// The map as text.
    pub fn decompile(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "# begin crush map")?;
        let legacy = Tunables::argonaut();
        for name in TUNABLES {
            let value = tunable(&self.tunables, name);
            if let Some(value) = value.filter(|_| value != tunable(&legacy, name)) {
                writeln!(out, "tunable {name} {value}")?;
            }
        }
        writeln!(out, "\n# devices")?;
        for (id, name) in self.names.range(0..self.max_devices.max(0)) {
            write!(out, "device {id} {name}")?;
            if let Some(class) = self.class_of(*id) {
                write!(out, " class {class}")?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\n# types")?;
        if !self.types.contains_key(&0) {
            writeln!(out, "type 0 osd")?;
        }
        for (id, name) in &self.types {
            writeln!(out, "type {id} {name}")?;
        }
        writeln!(out, "\n# buckets")?;
        let mut written = BTreeSet::new();
        for bucket in self.each_bucket() {
            self.write_bucket(out, bucket, &mut written)?;
        }
        writeln!(out, "\n# rules")?;
        for (id, rule) in self.rules.iter().enumerate() {
            if let Some(rule) = rule {
                self.write_rule(out, id as i32, rule)?;
            }
        }
        if !self.choose_args.is_empty() {
            writeln!(out, "\n# choose_args")?;
            for (id, args) in &self.choose_args {
                write_choose_args(out, *id, args)?;
            }
        }
        writeln!(out, "\n# end crush map")
    }

    fn item_text(&self, item: i32) -> String {
        match (self.name_of(item), item) {
            (Some(name), _) => name.to_owned(),
            (None, 0..) => format!("device{item}"),
            (None, _) => format!("bucket{}", -1 - i64::from(item)),
        }
    }

    fn type_text(&self, kind: i32) -> String {
        match (self.types.get(&kind), kind) {
            (Some(name), _) => name.clone(),
            (None, 0) => "device".to_owned(),
            (None, _) => format!("type{kind}"),
        }
    }

    /// A bucket after those it holds; a bucket met again, or a loop, is written once.
    fn write_bucket(
        &self,
        out: &mut String,
        bucket: &Bucket,
        written: &mut BTreeSet<i32>,
    ) -> fmt::Result {
        if self.is_shadow(bucket.id) || !written.insert(bucket.id) {
            return Ok(());
        }
        for child in bucket.items.iter().filter_map(|item| self.bucket(*item)) {
            self.write_bucket(out, child, written)?;
        }
        writeln!(out, "{} {} {{", self.type_text(bucket.kind.into()), self.item_text(bucket.id))?;
        writeln!(out, "\tid {}\t\t# do not change unnecessarily", bucket.id)?;
        for (class, shadow) in self.class_buckets.get(&bucket.id).into_iter().flatten() {
            let class = self.class_names.get(class).map_or("", String::as_str);
            writeln!(out, "\tid {shadow} class {class}\t\t# do not change unnecessarily")?;
        }
        writeln!(out, "\t# weight {}", Weight(bucket.weight))?;
        let alg = bucket.algorithm();
        let remark = match alg {
            Algorithm::Uniform => {
                format!("\t# do not change bucket size ({}) unnecessarily", bucket.items.len())
            }
            Algorithm::List => {
                "\t# add new items at the end; do not change order unnecessarily".to_owned()
            }
            Algorithm::Tree => "\t# do not change pos for existing items unnecessarily".to_owned(),
            Algorithm::Straw | Algorithm::Straw2 => String::new(),
        };
        writeln!(out, "\talg {}{remark}", alg.name())?;
        writeln!(out, "\thash {}\t# rjenkins1", bucket.hash)?;
        let with_place = matches!(alg, Algorithm::Uniform | Algorithm::Tree);
        for (place, (item, weight)) in bucket.weighted_items().into_iter().enumerate() {
            write!(out, "\titem {} weight {}", self.item_text(item), Weight(weight))?;
            if with_place {
                write!(out, " pos {place}")?;
            }
            writeln!(out)?;
        }
        writeln!(out, "}}")
    }

    fn write_rule(&self, out: &mut String, id: i32, rule: &Rule) -> fmt::Result {
        match self.rule_names.get(&id) {
            Some(name) => writeln!(out, "rule {name} {{")?,
            None => writeln!(out, "rule rule{id} {{")?,
        }
        writeln!(out, "\tid {id}")?;
        if id != i32::from(rule.ruleset) {
            writeln!(
                out,
                "\t# WARNING: ruleset {} != id {id}; this will not recompile to the same map",
                rule.ruleset
            )?;
        }
        match rule.kind {
            RULE_REPLICATED => writeln!(out, "\ttype replicated")?,
            RULE_ERASURE => writeln!(out, "\ttype erasure")?,
            kind => writeln!(out, "\ttype {kind}")?,
        }
        writeln!(out, "\tmin_size {}", rule.min_size)?;
        writeln!(out, "\tmax_size {}", rule.max_size)?;
        for step in &rule.steps {
            writeln!(out, "\tstep {}", self.step_text(step))?;
        }
        writeln!(out, "}}")
    }

    fn step_text(&self, step: &Step) -> String {
        if let Some((name, _)) = SET_STEPS.iter().find(|(_, number)| *number == step.op) {
            return format!("{name} {}", step.arg1);
        }
        if let Some((name, mode, _)) = CHOOSE_STEPS.iter().find(|(_, _, number)| *number == step.op)
        {
            return format!("{name} {mode} {} type {}", step.arg1, self.type_text(step.arg2));
        }
        match step.op {
            op::TAKE => match self.split_id_class(step.arg1) {
                (item, Some(class)) => {
                    let class = self.class_names.get(&class).map_or("", String::as_str);
                    format!("take {} class {class}", self.item_text(item))
                }
                (item, None) => format!("take {}", self.item_text(item)),
            },
            op::EMIT => "emit".to_owned(),
            _ => "noop".to_owned(),
        }
    }
}

fn write_choose_args(out: &mut String, id: i64, args: &ChooseArgs) -> fmt::Result {
    // The default set, -1, is written as the number it is without its sign.
    writeln!(out, "choose_args {} {{", id as u64)?;
    for (slot, arg) in args {
        if arg.weight_set.is_empty() && arg.ids.is_empty() {
            continue;
        }
        writeln!(out, "  {{\n    bucket_id {}", -1 - i64::from(*slot))?;
        if !arg.weight_set.is_empty() {
            writeln!(out, "    weight_set [")?;
            for set in &arg.weight_set {
                write!(out, "      [ ")?;
                set.iter().try_for_each(|weight| write!(out, "{} ", Weight(*weight)))?;
                writeln!(out, "]")?;
            }
            writeln!(out, "    ]")?;
        }
        if !arg.ids.is_empty() {
            write!(out, "    ids [ ")?;
            arg.ids.iter().try_for_each(|id| write!(out, "{id} "))?;
            writeln!(out, "]")?;
        }
        writeln!(out, "  }}")?;
    }
    writeln!(out, "}}")
}
