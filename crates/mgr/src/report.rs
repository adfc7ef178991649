//! Reports to the monitors: sums, findings, services.

use std::rc::Rc;

use crate::daemon::Mgr;

/// Runs until the manager stops.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    while !mgr.stopped.get() {
        let period = mgr.config.duration("mgr_tick_period");
        let _ = mgr.env.timeout(period, mgr.report_now.notified()).await;
    }
}
