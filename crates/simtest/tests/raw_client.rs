//! A client that sends OSDs what no library would.

use std::rc::Rc;

use client::Client;
use monclient::{MonClient, Settings};
use msgr::{Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use types::{EntityName, OsdId, RawMessage, entity};

use simtest::Cluster;

/// See the module.
pub(crate) struct RawClient {
    messenger: Messenger,
}

struct ToMonClient(MonClient);

impl Dispatcher for ToMonClient {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        // What OSDs answer nobody hears.
        drop(self.0.on_message(con, incoming));
    }

    fn on_connect(&self, con: &Connection) {
        self.0.on_connect(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.0.on_reset(con);
    }

    fn on_refused(&self, con: &Connection) {
        self.0.on_reset(con);
    }
}

impl RawClient {
    /// Connects as `client.admin` from a host of its own.
    pub(crate) async fn connect(cluster: &Cluster, host: &str) -> RawClient {
        let env = cluster.world().node(host);
        let config = cluster.config("client", "admin", host);
        let settings = Settings::from_config(&config, Some(cluster.keyring())).expect("settings");
        let inside = env.clone();
        let handle = env.spawn_with_handle(async move {
            let name = EntityName { kind: entity::CLIENT, num: -1 };
            let policies = Policies::new(Policy::lossy_client());
            let messenger = Messenger::new(inside.clone(), msgr::Config::new(name, 1, policies));
            let monc = MonClient::new(inside, messenger.clone(), settings);
            messenger.set_dispatcher(Rc::new(ToMonClient(monc.clone())));
            monc.start();
            monc.authenticated().await.expect("the monitor knows the client");
            RawClient { messenger }
        });
        handle.await
    }

    /// Sends an OSD messages over one connection.
    pub(crate) fn send(
        &self,
        admin: &Client,
        osd: OsdId,
        messages: impl IntoIterator<Item = RawMessage>,
    ) {
        let map = admin.osdmap();
        let addrs = map.addrs(osd).expect("the OSD is up");
        let con = self.messenger.connect_to(entity::OSD, addrs);
        messages.into_iter().for_each(|message| con.send(message));
    }
}
