//! Parts of messages against golden encodings of Ceph 16.2.0.

use messages::*;

#[test]
fn golden_encodings() {
    corpus::check_all! {
        "DaemonHealthMetric" => DaemonHealthMetric,
        "LogEntry" => LogEntry,
        "MonCommand" => MonCommand,
        "PerfCounterType" => PerfCounterType,
        "ProgressEvent" => ProgressEvent,
    }
}
