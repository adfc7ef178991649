//! Reports to the active manager, as every daemon sends them: counters and configuration
//! (`src/mgr/MgrClient.cc` at v16.2). `ceph config show mon.X` and the metrics of monitors come from them.

use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use messages::{DaemonHealthMetric, MMgrOpen, MMgrReport, Message};
use msgr::Connection;

use super::Shell;

/// Reports until the monitor stops.
pub(super) async fn run(shell: Rc<Shell>) {
    while !shell.stopped.get() {
        shell.env.sleep(shell.to_mgr.reporter.period()).await;
        if let Some(con) = shell.to_mgr.connection() {
            shell.report(&con);
        }
    }
}

impl Shell {
    /// Tells a manager that knows nothing of this monitor who it is.
    pub(super) fn open_reports(&self, con: &Connection) {
        let open = MMgrOpen {
            daemon_name: self.identity.name.clone(),
            service_name: String::new(),
            service: None,
            config: (self.conf.set_values(), self.conf.ignored()).to_bytes(),
            config_defaults: self.conf.defaults().to_bytes(),
        };
        self.to_mgr.config_told.set(self.conf.revision());
        self.to_mgr.reporter.opened();
        con.send(open.encode());
        self.report(con);
    }

    fn report(&self, con: &Connection) {
        let Some(counters) = self.core.borrow().as_ref().map(|core| core.list_counters()) else {
            return;
        };
        let mut report = MMgrReport {
            daemon_name: self.identity.name.clone(),
            // Requests are handled to their end in one step: none is slow.
            daemon_health_metrics: vec![DaemonHealthMetric { kind: 0, value: 0 }],
            config: self.config_if_changed(),
            rest: MMgrReport::NO_METRICS,
            ..MMgrReport::default()
        };
        self.to_mgr.reporter.fill(&mut report, &counters);
        con.send(report.encode());
    }

    /// The configuration for the manager, empty if it has it.
    fn config_if_changed(&self) -> Bytes {
        let revision = self.conf.revision();
        if self.to_mgr.config_told.replace(revision) == revision {
            return Bytes::new();
        }
        (self.conf.set_values(), self.conf.ignored()).to_bytes()
    }
}
