//! Daemons' performance counters on the page of metrics: which of them, under which names and
//! labels (`get_all_perf_counters` and `_perfpath_to_path_labels` of
//! `src/pybind/mgr/mgr_module.py`, `add_fixed_name_metrics` of the module, at v16.2).

use super::metrics::Page;
use crate::daemons::{Counter, DaemonKey, LONGRUNAVG};

/// Kinds of daemons whose counters are shown, and the priority that a counter must have.
const KINDS: [&str; 6] = ["mds", "mon", "osd", "rbd-mirror", "rgw", "tcmu-runner"];
const USEFUL: u8 = 5;
/// Type bits of a counter: a time, one that only grows, a histogram.
const TIME: u8 = 1;
const COUNTER: u8 = 8;
const HISTOGRAM: u8 = 16;

/// Where a counter is on the page.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    name: String,
    labels: Vec<(&'static str, String)>,
}

impl Place {
    /// A gateway's counters are joined with its metadata by its instance; a mirrored image's are
    /// told apart by labels.
    fn of(key: &DaemonKey, path: &str) -> Place {
        let label = match key.kind.as_str() {
            "rgw" => ("instance_id", key.name.clone()),
            _ => ("ceph_daemon", key.text()),
        };
        let image = mirrored_image(path).filter(|_| key.kind == "rbd-mirror");
        match image {
            Some((what, image)) => {
                let labels = [label].into_iter().chain(image.map(|(k, v)| (k, v.to_owned())));
                Place { name: format!("rbd_mirror_image_{what}"), labels: labels.collect() }
            }
            None => Place { name: path.to_owned(), labels: vec![label] },
        }
    }

    /// The same under a name without the zone's, that of a gateway's counters of synchronization:
    /// who looks at all zones cannot know the names.
    fn without_zone(&self) -> Option<Place> {
        let (zone, _) = self.name.strip_prefix("data-sync-from-")?.rsplit_once('.')?;
        // Up to the first dot, as Ceph has it.
        let rest = self.name.split_once('.').map_or("", |(_, rest)| rest);
        let mut labels = self.labels.clone();
        labels.push(("source_zone", zone.to_owned()));
        Some(Place { name: format!("data-sync-from-zone.{rest}"), labels })
    }
}

/// `replay_bytes` and its image of `rbd_mirror_image_POOL[/NAMESPACE]/IMAGE.replay_bytes`.
fn mirrored_image(path: &str) -> Option<(&str, [(&'static str, &str); 3])> {
    let (pool, rest) = path.strip_prefix("rbd_mirror_image_")?.split_once('/')?;
    let (rest, what) = rest.rsplit_once('.')?;
    if pool.is_empty() || !["replay", "replay_bytes", "replay_latency"].contains(&what) {
        return None;
    }
    let (namespace, image) =
        rest.split_once('/').filter(|(namespace, _)| !namespace.is_empty()).unwrap_or(("", rest));
    Some((what, [("pool", pool), ("namespace", namespace), ("image", image)]))
}

/// Adds a counter of a daemon.
pub(super) fn add(page: &mut Page, key: &DaemonKey, path: &str, counter: &Counter) {
    const NANOS: f64 = 1e9;
    let bits = counter.kind.kind;
    let kind = match bits & (LONGRUNAVG | COUNTER | HISTOGRAM) {
        0 => "gauge",
        LONGRUNAVG | COUNTER => "counter",
        _ => return,
    };
    if !KINDS.contains(&key.kind.as_str()) || counter.kind.priority < USEFUL {
        return;
    }
    let help = &counter.kind.description;
    let unit = if bits & TIME == 0 { 1.0 } else { NANOS };
    let value = counter.last.value as f64 / unit;
    let place = Place::of(key, path);
    let average = bits & LONGRUNAVG != 0;
    for Place { name, labels } in [place.without_zone(), Some(place)].into_iter().flatten() {
        let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
        if !average {
            page.add(kind, &name, help, &labels, value);
            continue;
        }
        page.add(kind, &format!("{name}_sum"), &format!("{help} Total"), &labels, value);
        let count = counter.last.count as f64;
        page.add("counter", &format!("{name}_count"), &format!("{help} Count"), &labels, count);
    }
}

#[cfg(test)]
mod tests {
    use messages::PerfCounterType;

    use super::*;
    use crate::daemons::Sample;

    fn samples(kind: &str, path: &str, bits: u8, priority: u8) -> Vec<String> {
        let key = DaemonKey { kind: kind.to_owned(), name: "7".to_owned() };
        let kind = PerfCounterType { kind: bits, priority, ..PerfCounterType::default() };
        let last = Sample { value: 3_000_000_000, count: 2, ..Sample::default() };
        let counter = Counter { kind, last, ..Counter::default() };
        let mut page = Page::default();
        add(&mut page, &key, path, &counter);
        let text = page.text();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    /// Dashboards of gateways and mirrors were empty: they join counters by `instance_id`, and look for images in
    /// labels, not in names.
    #[test]
    fn counters_have_the_labels_that_dashboards_join_by() {
        let u64_counter = COUNTER | 2;
        assert_eq!(
            samples("rgw", "rgw.get", u64_counter, 8),
            [r#"ceph_rgw_get{instance_id="7"} 3000000000.0"#]
        );
        assert_eq!(
            samples("rbd-mirror", "rbd_mirror_image_p/ns/a.b.replay_bytes", u64_counter, 8),
            [
                r#"ceph_rbd_mirror_image_replay_bytes{ceph_daemon="rbd-mirror.7",pool="p",namespace="ns",image="a.b"} 3000000000.0"#
            ]
        );
        let average = TIME | LONGRUNAVG;
        assert_eq!(
            samples("rbd-mirror", "rbd_mirror_image_p/a.replay_latency", average, 8),
            [
                r#"ceph_rbd_mirror_image_replay_latency_count{ceph_daemon="rbd-mirror.7",pool="p",namespace="",image="a"} 2.0"#,
                r#"ceph_rbd_mirror_image_replay_latency_sum{ceph_daemon="rbd-mirror.7",pool="p",namespace="",image="a"} 3.0"#,
            ]
        );
        assert_eq!(
            samples("rgw", "data-sync-from-here.fetch_bytes", average, 8)[2..],
            [
                r#"ceph_data_sync_from_zone_fetch_bytes_count{instance_id="7",source_zone="here"} 2.0"#,
                r#"ceph_data_sync_from_zone_fetch_bytes_sum{instance_id="7",source_zone="here"} 3.0"#,
            ]
        );
    }

    /// With `mgr_stats_threshold` 0 the page had thousands of metrics that Ceph's has not, and times in nanoseconds.
    #[test]
    fn what_is_not_useful_is_left_out() {
        assert!(samples("osd", "osd.x", COUNTER, USEFUL - 1).is_empty());
        assert!(samples("mgr", "mgr.x", COUNTER, USEFUL).is_empty());
        assert!(samples("osd", "osd.x", COUNTER | HISTOGRAM, USEFUL).is_empty());
        assert_eq!(
            samples("osd", "osd.x", TIME, USEFUL),
            [r#"ceph_osd_x{ceph_daemon="osd.7"} 3.0"#]
        );
    }
}
