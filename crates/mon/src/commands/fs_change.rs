//! File systems made, changed and removed (`src/mon/FSCommands.cc` at v16.2).

use maps::PgPool;
use maps::fsmap::MirrorPeer;
use maps::mdsmap::{CEPHFS_FEATURES, FS_NONE, FsId, mds_flags};
use maps::pool::{PoolOpt, pool_flags, pool_opts};
use types::Errno;

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse, say, unhandled};
use crate::clog::INFO;
use crate::core::MonCore;

/// The application that pools of file systems are marked with.
const CEPHFS: &str = "cephfs";
/// File systems at most.
const FILESYSTEMS_MAX: usize = 1000;
/// Pools of files of one file system at most.
const DATA_POOLS_MAX: usize = 1000;
/// Clusters that one file system is copied to, at most.
const PEERS_MAX: usize = 100;
/// Numbers of features that a file system may be said to need are below this.
const FEATURES_MAX: i64 = 64;

/// `true`, `yes`, `1` and their contraries, as Ceph's file system commands spell them.
pub(super) fn parse_bool(text: &str) -> Result<bool, Refusal> {
    match text {
        "false" | "no" | "0" => Ok(false),
        "true" | "yes" | "1" => Ok(true),
        _ => fail(Errno::EINVAL, "value must be false|no|0 or true|yes|1"),
    }
}

/// What a pool is to be for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PoolUse {
    Metadata,
    DefaultData,
    MoreData,
}

impl PoolUse {
    fn key(self) -> &'static str {
        if self == PoolUse::Metadata { "metadata" } else { "data" }
    }
}

/// Whether a pool may be a file system's.
fn check_pool(
    id: i64,
    name: &str,
    pool: &PgPool,
    use_: PoolUse,
    force: bool,
) -> Result<(), Refusal> {
    let refused = |text: String| fail(Errno::EINVAL, text);
    let who = format!("pool '{name}' (id '{id}')");
    if !pool.snaps.is_empty() {
        return fail(
            Errno::EOPNOTSUPP,
            format!("pool({id}) already has mon-managed snaps; can't attach pool to fs"),
        );
    }
    if pool.is_erasure() {
        if use_ == PoolUse::Metadata {
            return refused(format!(
                "{who} is an erasure-coded pool.  Use of erasure-coded pools for CephFS metadata is \
                 not permitted"
            ));
        }
        if use_ == PoolUse::DefaultData && !force {
            return refused(format!(
                "{who} is an erasure-coded pool. Use of an EC pool for the default data pool is \
                 discouraged; see the online CephFS documentation for more information. Use --force to \
                 override."
            ));
        }
        if !pool.has_flag(pool_flags::EC_OVERWRITES) {
            return refused(format!("{who} is an erasure-coded pool, with no overwrite support"));
        }
    }
    if pool.is_tier() {
        return refused(format!(" {who} is already in use as a cache tier."));
    }
    let apps = &pool.application_metadata;
    if !force && !apps.is_empty() && !apps.contains_key(CEPHFS) {
        return refused(format!(" {who} has a non-CephFS application enabled."));
    }
    Ok(())
}

impl MonCore {
    pub(super) fn cmd_fs_change(&mut self, cmd: &Cmd) -> CmdResult {
        let named = cmd.map.opt_string("fs_name")?.unwrap_or_default();
        if !self.may_know(cmd.session, &named) {
            return fail(Errno::EPERM, format!("Permission denied: '{named}'"));
        }
        match cmd.prefix.as_str() {
            "fs new" => return self.fs_new(cmd),
            "fs rm" => return self.fs_rm(cmd),
            "fs flag set" => {
                let on = cmd.string("val")?;
                let on = parse_bool(&on).map_err(|e| Refusal {
                    text: format!("{}: invalid boolean value '{on}'", e.text),
                    ..e
                })?;
                let map = self.change_fsmap();
                map.enable_multiple = on;
                map.ever_enabled_multiple |= on;
                return done();
            }
            _ => {}
        }
        let name = cmd.string("fs_name")?;
        let Some(fscid) = self.mds.map.by_name(&name).map(|fs| fs.fscid) else {
            return fail(Errno::ENOENT, format!("Filesystem not found: '{name}'"));
        };
        match cmd.prefix.as_str() {
            "fs set" => self.fs_set(cmd, fscid),
            "fs fail" => self.fs_fail(fscid, &name),
            "fs reset" => self.fs_reset(cmd, fscid),
            "fs set_default" | "fs set-default" => {
                self.change_fsmap().legacy_client_fscid = fscid;
                done()
            }
            "fs add_data_pool" => self.fs_add_data_pool(cmd, fscid, &name),
            "fs rm_data_pool" => self.fs_rm_data_pool(cmd, fscid),
            "fs compat" => self.fs_compat(cmd, fscid),
            "fs required_client_features" => self.fs_required_features(cmd, fscid),
            "fs mirror enable" | "fs mirror disable" => self.fs_mirror(cmd, fscid),
            "fs mirror peer_add" | "fs mirror peer_remove" => {
                self.fs_mirror_peer(cmd, fscid, &name)
            }
            _ => unhandled(),
        }
    }

    fn pool_by_name(&mut self, name: &str) -> Result<i64, Refusal> {
        let found = self.next_map().lookup_pool(name);
        found.ok_or_else(|| refuse(Errno::ENOENT, format!("pool '{name}' does not exist")))
    }

    /// Marks a pool as a file system's, whatever it was marked with.
    fn mark_pool(&mut self, id: i64, use_: PoolUse, fs_name: &str) {
        let Some(mut pool) = self.pool_to_change(id) else { return };
        let keys = pool.application_metadata.entry(CEPHFS.to_string()).or_default();
        keys.insert(use_.key().to_string(), fs_name.to_string());
        if use_ == PoolUse::Metadata {
            // Metadata are recovered first, and have many small objects.
            pool.opts.0.extend([
                (pool_opts::RECOVERY_PRIORITY, PoolOpt::Int(5)),
                (pool_opts::PG_NUM_MIN, PoolOpt::Int(16)),
                (pool_opts::PG_AUTOSCALE_BIAS, PoolOpt::Double(4.0)),
            ]);
        }
        self.put_pool(id, pool);
    }

    fn fs_new(&mut self, cmd: &Cmd) -> CmdResult {
        let (metadata_name, data_name) = (cmd.string("metadata")?, cmd.string("data")?);
        let metadata = self.pool_by_name(&metadata_name)?;
        let data = self.pool_by_name(&data_name)?;
        let name = cmd.name("fs_name")?;
        if name.is_empty() {
            return fail(Errno::EINVAL, "Filesystem name may not be empty");
        }
        if let Some(fs) = self.mds.map.by_name(&name) {
            let map = &fs.mds_map;
            if map.data_pools.first() == Some(&data) && map.metadata_pool == metadata {
                return say(format!("filesystem '{name}' already exists"));
            }
            let text = format!("filesystem already exists with name '{name}'");
            return fail(Errno::EINVAL, text);
        }
        let force = cmd.map.flag("force");
        let objects = self.stat.pool_stat(metadata).map_or(0, |s| s.stats.sum.num_objects);
        if objects > 0 && !force {
            return fail(
                Errno::EINVAL,
                format!(
                    "pool '{metadata_name}' already contains some objects. Use an empty pool instead."
                ),
            );
        }
        let map = &self.mds.map;
        if !map.filesystems.is_empty() && !map.enable_multiple {
            return fail(
                Errno::EINVAL,
                "Creation of multiple filesystems is disabled.  To enable this experimental feature, \
                 use 'ceph fs flag set enable_multiple true'",
            );
        }
        if map.filesystems.len() >= FILESYSTEMS_MAX {
            return fail(Errno::EINVAL, format!("there are {FILESYSTEMS_MAX} filesystems already"));
        }
        let used = map.filesystems.values().map(|fs| &fs.mds_map);
        let used =
            { used }.any(|map| map.data_pools.contains(&data) || map.metadata_pool == metadata);
        if used && !cmd.map.flag("allow_dangerous_metadata_overlay") {
            return fail(
                Errno::EEXIST,
                format!(
                    "Filesystem '{name}' is already using one of the specified RADOS pools. This \
                     should ONLY be done in emergencies and after careful reading of the \
                     documentation. Pass --allow-dangerous-metadata-overlay to permit this."
                ),
            );
        }
        let fscid = self.wanted_fscid(cmd, force)?;
        let pools = self.next_map();
        let of = |id: i64| pools.pool(id).cloned().unwrap_or_default();
        check_pool(data, &data_name, &of(data), PoolUse::DefaultData, force)?;
        check_pool(metadata, &metadata_name, &of(metadata), PoolUse::Metadata, force)?;
        self.make_fs(cmd, &name, (metadata, data), fscid);
        say(format!("new fs with metadata pool {metadata} and data pool {data}"))
    }

    /// The number that somebody wants a new file system to have.
    fn wanted_fscid(&self, cmd: &Cmd, force: bool) -> Result<Option<FsId>, Refusal> {
        let Some(number) = cmd.map.opt_int("fscid")? else { return Ok(None) };
        if !force {
            return fail(Errno::EINVAL, "Pass --force to create a file system with a specific ID");
        }
        // Ceph takes 0 and numbers that do not fit, too: they are found by nobody.
        let valid = FsId::try_from(number).ok().filter(|id| (1..FsId::MAX).contains(id));
        let id = valid.ok_or_else(|| refuse(Errno::EINVAL, format!("invalid id '{number}'")))?;
        if self.mds.map.filesystems.contains_key(&id) {
            return fail(Errno::EINVAL, format!("filesystem already exists with id '{id}'"));
        }
        Ok(Some(id))
    }

    fn make_fs(&mut self, cmd: &Cmd, name: &str, pools: (i64, i64), fscid: Option<FsId>) {
        let (now, recover) = (self.now.wall, cmd.map.flag("recover"));
        let fscid = self.change_fsmap().create_filesystem(name, pools, fscid, recover, now);
        self.mark_pool(pools.1, PoolUse::DefaultData, name);
        self.mark_pool(pools.0, PoolUse::Metadata, name);
        if recover {
            return;
        }
        // Whoever waits begins at once.
        if let Some(next) = self.mds.map.replacement_for(fscid, 0) {
            let gid = next.gid;
            let text = format!("daemon mds.{} assigned to filesystem {name} as rank 0", next.name);
            self.log_own("cluster", INFO, text);
            self.change_fsmap().promote(gid, fscid, 0);
        }
    }

    fn fs_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("fs_name")?;
        let Some(fs) = self.mds.map.by_name(&name) else {
            return say(format!("filesystem '{name}' does not exist"));
        };
        let fscid = fs.fscid;
        if !fs.mds_map.up.is_empty() {
            return fail(
                Errno::EINVAL,
                "all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs \
                 fail`.",
            );
        }
        if !cmd.map.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "this is a DESTRUCTIVE operation and will make data in your filesystem permanently \
                 inaccessible.  Add --yes-i-really-mean-it if you are sure you wish to continue.",
            );
        }
        let followers: Vec<u64> = fs.mds_map.info.keys().copied().collect();
        followers.iter().for_each(|gid| self.fail_mds(*gid));
        let map = self.change_fsmap();
        map.filesystems.remove(&fscid);
        if map.legacy_client_fscid == fscid {
            map.legacy_client_fscid = FS_NONE;
        }
        done()
    }

    fn fs_fail(&mut self, fscid: FsId, name: &str) -> CmdResult {
        let mut all = Vec::new();
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mds_map.set_flag(mds_flags::NOT_JOINABLE, true);
            all.extend(fs.mds_map.info.keys().copied());
        }
        all.iter().for_each(|gid| self.fail_mds(*gid));
        say(format!(
            "{name} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed."
        ))
    }

    fn fs_reset(&mut self, cmd: &Cmd, fscid: FsId) -> CmdResult {
        let up = self.mds.map.filesystems.get(&fscid).is_some_and(|fs| !fs.mds_map.up.is_empty());
        if up {
            return fail(
                Errno::EINVAL,
                "all MDS daemons must be inactive before resetting filesystem: set the cluster_down \
                 flag and use `ceph mds fail` to make this so",
            );
        }
        if !cmd.map.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "this is a potentially destructive operation, only for use by experts in disaster \
                 recovery.  Add --yes-i-really-mean-it if you are sure you wish to continue.",
            );
        }
        let fs = self.mds.map.filesystems.get(&fscid);
        let followers: Vec<u64> =
            fs.map(|fs| fs.mds_map.info.keys().copied().collect()).unwrap_or_default();
        followers.iter().for_each(|gid| self.fail_mds(*gid));
        let now = self.now.wall;
        self.change_fsmap().reset_filesystem(fscid, now);
        done()
    }

    /// A pool by name or number.
    fn pool_argument(&mut self, cmd: &Cmd) -> Result<(i64, String), Refusal> {
        let text = cmd.string("pool")?;
        let map = self.next_map();
        let id = map.lookup_pool(&text).or_else(|| text.parse().ok());
        let id =
            id.ok_or_else(|| refuse(Errno::ENOENT, format!("pool '{text}' does not exist")))?;
        if id < 0 {
            return fail(Errno::EINVAL, format!("invalid pool id '{id}'"));
        }
        Ok((id, map.pool_names.get(&id).cloned().unwrap_or(text)))
    }

    fn fs_add_data_pool(&mut self, cmd: &Cmd, fscid: FsId, fs_name: &str) -> CmdResult {
        let (id, name) = self.pool_argument(cmd)?;
        let Some(pool) = self.next_map().pool(id).cloned() else {
            return fail(Errno::ENOENT, format!("pool id '{id}' does not exist"));
        };
        check_pool(id, &name, &pool, PoolUse::MoreData, false)?;
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        if fs.mds_map.data_pools.contains(&id) {
            return say(format!("data pool {id} is already on fs {fs_name}"));
        }
        if fs.mds_map.data_pools.len() >= DATA_POOLS_MAX {
            let text = format!("fs {fs_name} has {DATA_POOLS_MAX} data pools already");
            return fail(Errno::EINVAL, text);
        }
        self.mark_pool(id, PoolUse::MoreData, fs_name);
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mds_map.data_pools.push(id);
        }
        say(format!("added data pool {id} to fsmap"))
    }

    fn fs_rm_data_pool(&mut self, cmd: &Cmd, fscid: FsId) -> CmdResult {
        let (id, _) = self.pool_argument(cmd)?;
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        if fs.mds_map.data_pools.first() == Some(&id) {
            return fail(Errno::EINVAL, "cannot remove default data pool");
        }
        if !fs.mds_map.data_pools.contains(&id) {
            return done();
        }
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mds_map.data_pools.retain(|pool| *pool != id);
        }
        say(format!("removed data pool {id} from fsmap"))
    }

    fn fs_compat(&mut self, cmd: &Cmd, fscid: FsId) -> CmdResult {
        let subop = cmd.string("subop")?;
        let feature = cmd.map.int("feature")?;
        let feature = u64::try_from(feature).ok().filter(|n| (1..64).contains(n));
        let feature = feature.ok_or_else(|| refuse(Errno::EINVAL, "Invalid feature"))?;
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        if !fs.mds_map.up.is_empty() {
            return fail(
                Errno::EBUSY,
                "file system must be failed or down; use `ceph fs fail` to bring down",
            );
        }
        let (adds, kind) = match subop.split_once('_') {
            Some(("add", kind)) => (true, kind.to_string()),
            Some((_, kind)) => (false, kind.to_string()),
            None => return unhandled(),
        };
        let mut compat = fs.mds_map.compat.clone();
        let set = if kind == "compat" { &mut compat.compat } else { &mut compat.incompat };
        let text = if adds {
            let name = cmd.map.opt_string("feature_str")?.filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| {
                refuse(Errno::EINVAL, "adding a feature requires a feature string")
            })?;
            super::check_name(&name)?;
            match set.names.get(&feature) {
                Some(old) if *old == name => "feature already exists".to_string(),
                Some(old) => {
                    let text = format!("feature with differing name `{old}' exists");
                    return fail(Errno::EEXIST, text);
                }
                None => {
                    set.names.insert(feature, name.clone());
                    format!("added {kind} feature {feature}={name}")
                }
            }
        } else if set.names.remove(&feature).is_some() {
            format!("removed {kind} feature {feature}")
        } else {
            format!("already removed {kind} feature {feature}")
        };
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mds_map.compat = compat;
        }
        say(text)
    }

    fn fs_required_features(&mut self, cmd: &Cmd, fscid: FsId) -> CmdResult {
        let (adds, text) = (cmd.string("subop")? == "add", cmd.string("val")?);
        let named = CEPHFS_FEATURES.iter().position(|name| *name == text && text != "reserved");
        let feature = match named {
            Some(number) => number,
            None => {
                let number: i64 = text
                    .parse()
                    .map_err(|_| refuse(Errno::EINVAL, format!("Invalid feature name: {text}")))?;
                let known = (0..FEATURES_MAX.min(CEPHFS_FEATURES.len() as i64)).contains(&number);
                if !known {
                    return fail(Errno::EINVAL, format!("Invalid feature id: {number}"));
                }
                number as usize
            }
        };
        let name = CEPHFS_FEATURES[feature];
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        if fs.mds_map.requires(feature) == adds {
            let state = if adds { "set" } else { "unset" };
            return say(format!("feature '{name}' is already {state}"));
        }
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mds_map.require(feature, adds);
        }
        say(match adds {
            true => format!("added feature '{name}' to required_client_features"),
            false => format!("removed feature '{name}' from required_client_features"),
        })
    }

    fn fs_mirror(&mut self, cmd: &Cmd, fscid: FsId) -> CmdResult {
        let on = cmd.prefix == "fs mirror enable";
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        if fs.mirror_info.as_ref().is_some_and(|info| info.mirrored) != on
            && let Some(fs) = self.change_fsmap().change_fs(fscid)
        {
            let info = fs.mirror_info.get_or_insert_default();
            info.mirrored = on;
            if !on {
                info.peers.clear();
            }
        }
        done()
    }

    fn fs_mirror_peer(&mut self, cmd: &Cmd, fscid: FsId, fs_name: &str) -> CmdResult {
        let uuid = cmd.name("uuid")?;
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return unhandled() };
        let Some(info) = fs.mirror_info.as_ref().filter(|info| info.mirrored) else {
            let text = format!("Mirroring not enabled for filesystem '{fs_name}'");
            return fail(Errno::EINVAL, text);
        };
        if cmd.prefix == "fs mirror peer_remove" {
            let Some(peer) = info.peers.iter().find(|peer| peer.uuid == uuid).cloned() else {
                return say(format!("cannot find peer with uuid: {uuid}"));
            };
            if let Some(fs) = self.change_fsmap().change_fs(fscid) {
                fs.mirror_info.get_or_insert_default().peers.remove(&peer);
            }
            return done();
        }
        let spec = cmd.name("remote_cluster_spec")?;
        let Some((client_name, cluster_name)) = spec.split_once('@') else {
            return fail(
                Errno::EINVAL,
                "invalid remote cluster spec -- should be <client>@<cluster>",
            );
        };
        let peer = MirrorPeer {
            uuid,
            client_name: client_name.to_string(),
            cluster_name: cluster_name.to_string(),
            fs_name: cmd.name("remote_fs_name")?,
        };
        let same = |old: &MirrorPeer| {
            old.uuid == peer.uuid || MirrorPeer { uuid: peer.uuid.clone(), ..old.clone() } == peer
        };
        if info.peers.iter().any(same) {
            return say("peer already exists");
        }
        if info.peers.len() >= PEERS_MAX {
            return fail(Errno::EINVAL, format!("there are {PEERS_MAX} peers already"));
        }
        if let Some(fs) = self.change_fsmap().change_fs(fscid) {
            fs.mirror_info.get_or_insert_default().peers.insert(peer);
        }
        done()
    }
}
