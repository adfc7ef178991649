//! A session with the monitors as `client.admin`, for the commands of this binary.

use std::rc::Rc;
use std::time::Duration;

use auth::Keyring;
use bytes::Bytes;
use config::Config;
use env::Env;
use maps::MonMap;
use monclient::{MonClient, MonitorsOnly, Settings};
use msgr::{Messenger, Policies, Policy};
use types::AuthEntityName;
use types::entity::{CLIENT, EntityName, MON};

use crate::daemon;
use crate::failure::Failure;
use crate::layout::Layout;

/// How long the monitor gets to answer.
const CONNECT_TIME: Duration = Duration::from_secs(15);

/// Between two knocks at a monitor that does not listen yet.
const KNOCK_PAUSE: Duration = Duration::from_millis(3);
/// Between two looks at the monitor map.
const MAP_PAUSE: Duration = Duration::from_millis(20);
/// How long to knock.
const KNOCK_TIME: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct AdminSession {
    env: Env,
    monc: MonClient,
}

impl AdminSession {
    /// Connects to the monitor of the cluster in the folder.
    pub(crate) async fn connect(env: &Env, layout: &Layout) -> Result<AdminSession, Failure> {
        let config = daemon::load_made("client", "admin", &layout.conf(), &[])?;
        AdminSession::open(env, &config).await
    }

    /// Connects to the cluster that a monitor is to join, with the monitors' own key.
    pub(crate) async fn of_monitor(
        env: &Env,
        config: &Config,
        keyring: &Keyring,
    ) -> Result<AdminSession, Failure> {
        let name = AuthEntityName::new(MON, "");
        let mut keyring = keyring.clone();
        if let Some(auth) = keyring.keys.get(&name).cloned() {
            keyring.keys.insert(AuthEntityName::new(MON, config.id()), auth);
        }
        let mut settings = Settings::from_config(config, Some(&keyring))
            .map_err(|e| Failure::new(e.to_string()))?;
        settings.name = name;
        AdminSession::begin(env, config, settings).await
    }

    /// The newest monitor map, or, if it is to name a monitor, the first that does.
    pub(crate) async fn monmap(&self, with: Option<&str>) -> Result<MonMap, Failure> {
        let newest = async {
            let mut map = self.monc.monmap_ready().await.ok()?;
            while with.is_some_and(|name| !map.mon_info.contains_key(name)) {
                self.env.sleep(MAP_PAUSE).await;
                map = self.monc.monmap()?;
            }
            Some(MonMap::clone(&map))
        };
        match self.env.timeout(CONNECT_TIME, newest).await {
            Ok(Some(map)) => Ok(map),
            _ => Err(Failure::new("no monitor map came from the monitors")),
        }
    }

    async fn open(env: &Env, config: &Config) -> Result<AdminSession, Failure> {
        let keyring = daemon::read_keyring(config)?;
        let settings = Settings::from_config(config, keyring.as_ref())
            .map_err(|e| Failure::new(e.to_string()))?;
        AdminSession::begin(env, config, settings).await
    }

    async fn begin(
        env: &Env,
        config: &Config,
        settings: Settings,
    ) -> Result<AdminSession, Failure> {
        wait_for_listener(env, &settings).await;
        let nonce = u32::try_from(env.random_u64() >> 32).unwrap_or(1);
        let name = EntityName { kind: CLIENT, num: -1 };
        let policies = Policies::new(Policy::lossy_client());
        let messenger = Messenger::new(env.clone(), msgr::Config::new(name, nonce, policies));
        let monc = MonClient::new(env.clone(), messenger.clone(), settings);
        messenger.set_dispatcher(Rc::new(MonitorsOnly(monc.clone())));
        monc.start();
        match env.timeout(CONNECT_TIME, monc.authenticated()).await {
            Ok(Ok(())) => Ok(AdminSession { env: env.clone(), monc }),
            Ok(Err(e)) => Err(Failure::new(format!("the monitor refused client.admin: {e}"))),
            Err(_) => Err(Failure::new(format!(
                "no monitor answered at {} within {} s",
                config.str("mon_host"),
                CONNECT_TIME.as_secs()
            ))),
        }
    }

    /// The environment the session runs in.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Runs a command given as JSON; its output as text.
    pub(crate) async fn command(&self, json: &str, input: &str) -> Result<String, Failure> {
        let answer = self
            .monc
            .command(vec![json.to_owned()], Bytes::copy_from_slice(input.as_bytes()))
            .await
            .map_err(|e| Failure::new(e.to_string()))?;
        if answer.rc < 0 {
            return Err(Failure::new(format!(
                "the monitor answered {}: {}",
                answer.rc, answer.outs
            )));
        }
        Ok(String::from_utf8_lossy(&answer.outb).into_owned())
    }

    /// Runs a command that answers in JSON.
    pub(crate) async fn json(&self, json: &str, input: &str) -> Result<serde_json::Value, Failure> {
        let text = self.command(json, input).await?;
        serde_json::from_str(&text)
            .map_err(|e| Failure::new(format!("the monitor's answer is not JSON: {e}")))
    }
}

/// Knocks until a monitor listens: a messenger whose first attempt is refused pauses for long.
async fn wait_for_listener(env: &Env, settings: &Settings) {
    let addrs = settings.mons.iter().filter_map(|mon| mon.msgr2()?.sock);
    let addrs: Vec<_> = addrs.collect();
    let knock = async {
        loop {
            for addr in &addrs {
                if let Ok(stream) = env.connect(*addr).await {
                    stream.close();
                    return;
                }
            }
            env.sleep(KNOCK_PAUSE).await;
        }
    };
    // A monitor that is not there is found out by the session itself, with its own words.
    let _ = env.timeout(KNOCK_TIME, knock).await;
}

impl Drop for AdminSession {
    fn drop(&mut self) {
        self.monc.shutdown();
    }
}
