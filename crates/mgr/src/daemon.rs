//! The daemon: start, dispatch, stop.

use std::rc::Rc;

use auth::Keyring;
use command::CommandReply;
use config::Config;
use env::{Env, LocalFuture};
use monclient::Settings;
use types::entity::{MDS, MGR, MON, OSD};

use crate::MgrError;

/// A running manager.
pub struct Mgr {
    #[expect(dead_code, reason = "used by what follows")]
    config: Rc<Config>,
}

impl Mgr {
    /// Starts a manager: listens, opens a session with the monitors.
    pub async fn start(
        env: Env,
        config: Rc<Config>,
        keyring: Keyring,
    ) -> Result<Rc<Mgr>, MgrError> {
        let want = u32::from(MON | OSD | MDS | MGR);
        let settings = Settings::from_config(&config, Some(&keyring), want)
            .map_err(MgrError::Settings)?;
        let _ = (env, settings);
        Ok(Rc::new(Mgr { config }))
    }

    /// Runs a command of the admin socket, given as JSON.
    pub fn admin_command(self: &Rc<Self>, json: String) -> LocalFuture<CommandReply> {
        Box::pin(async move { CommandReply::error(22, json) })
    }

    /// Stops serving and says goodbye.
    pub async fn shutdown(self: &Rc<Self>) {}
}
