//! The ratios at which OSDs count as full, when they contradict each other: the health check
//! OSD_OUT_OF_ORDER_FULL (`OSDMap::check_health`, `src/osd/OSDMap.cc` at v16.2).

use command::format_stream_float;
use maps::OsdMap;

/// A line for each ratio that is below the one before it, and so stands for that one: nearfull,
/// backfillfull, full, failsafe (a share, or a percentage if above 1).
pub(crate) fn out_of_order(map: &OsdMap, failsafe: f64) -> Vec<String> {
    let failsafe = if failsafe > 1.0 { failsafe / 100.0 } else { failsafe };
    let steps = [
        ("nearfull_ratio", map.nearfull_ratio),
        ("backfillfull_ratio", map.backfillfull_ratio),
        ("full_ratio", map.full_ratio),
        ("osd_failsafe_full_ratio", failsafe as f32),
    ];
    let mut lines = Vec::new();
    let (mut below, mut least) = steps[0];
    for (name, ratio) in &steps[1..] {
        if *ratio < least {
            let text = |ratio: f32| format_stream_float(ratio.into());
            let (ratio, least) = (text(*ratio), text(least));
            lines.push(format!("{name} ({ratio}) < {below} ({least}), increased"));
        }
        (below, least) = (name, ratio.max(least));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ratios that contradict each other were taken without a word.
    #[test]
    fn contradicting_ratios_are_told() {
        let map = |nearfull_ratio, backfillfull_ratio, full_ratio| OsdMap {
            nearfull_ratio,
            backfillfull_ratio,
            full_ratio,
            ..OsdMap::default()
        };
        assert!(out_of_order(&map(0.85, 0.9, 0.95), 0.97).is_empty());
        assert!(out_of_order(&map(0.85, 0.9, 0.95), 97.0).is_empty());
        assert_eq!(
            out_of_order(&map(0.913, 0.912, 0.962), 0.97),
            ["backfillfull_ratio (0.912) < nearfull_ratio (0.913), increased"]
        );
        assert_eq!(
            out_of_order(&map(0.99, 0.912, 0.962), 0.97),
            [
                "backfillfull_ratio (0.912) < nearfull_ratio (0.99), increased",
                "full_ratio (0.962) < backfillfull_ratio (0.99), increased",
                "osd_failsafe_full_ratio (0.97) < full_ratio (0.99), increased",
            ]
        );
    }
}
