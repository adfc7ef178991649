//! A dispatcher for who talks to monitors and listens to nobody else.

use msgr::{Connection, Dispatcher, Incoming};

use crate::MonClient;

/// Gives a [`MonClient`] what comes; what is not for it is dropped.
pub struct MonitorsOnly(pub MonClient);

impl Dispatcher for MonitorsOnly {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        drop(self.0.on_message(con, incoming));
    }

    fn on_connect(&self, con: &Connection) {
        self.0.on_connect(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.0.on_reset(con);
    }
}
