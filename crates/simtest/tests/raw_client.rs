//! A client that sends OSDs what no library would.

use std::rc::Rc;

use client::Client;
use monclient::{MonClient, MonitorsOnly, Settings};
use msgr::{Dispatcher, Messenger, Policies, Policy};
use types::{EntityName, OsdId, RawMessage, entity};

use simtest::Cluster;

/// See the module.
pub(crate) struct RawClient {
    messenger: Messenger,
}

impl RawClient {
    /// Connects as `client.admin` from a host of its own.
    pub(crate) async fn connect(cluster: &Cluster, host: &str) -> RawClient {
        RawClient { messenger: connect(cluster, host, MonitorsOnly).await.0 }
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

/// Connects to the monitors as `client.admin` from a host of its own, with what hears all that comes.
pub(crate) async fn connect<D: Dispatcher + 'static>(
    cluster: &Cluster,
    host: &str,
    hears: impl FnOnce(MonClient) -> D + 'static,
) -> (Messenger, Rc<D>) {
    let env = cluster.world().node(host);
    let config = cluster.config("client", "admin", host);
    let settings = Settings::from_config(&config, Some(cluster.keyring())).expect("settings");
    let inside = env.clone();
    let handle = env.spawn_with_handle(async move {
        let name = EntityName { kind: entity::CLIENT, num: -1 };
        let policies = Policies::new(Policy::lossy_client());
        let messenger = Messenger::new(inside.clone(), msgr::Config::new(name, 1, policies));
        let monc = MonClient::new(inside, messenger.clone(), settings);
        let dispatcher = Rc::new(hears(monc.clone()));
        messenger.set_dispatcher(dispatcher.clone());
        monc.start();
        monc.authenticated().await.expect("the monitor knows the client");
        (messenger, dispatcher)
    });
    handle.await
}
