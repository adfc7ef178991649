//! What a schedule is for: everything, a pool, a namespace or an image
//! (`LevelSpec` in `src/pybind/mgr/rbd_support/schedule.py` at v16.2).
//!
//! ```text
//! name:  ''   pool/   pool/ns/   pool//   pool/image     pool/ns/image
//! id:    ''   2       2/ns       2/       2//IMAGE_ID    2/ns/IMAGE_ID
//! ```

use client::rbd;
use client::{Client, ClientError, IoCtx};
use types::Errno;

use super::rbd_pools;

/// What is done to what the schedules name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The trash is purged: levels down to namespaces.
    TrashPurge,
    /// Mirror snapshots are taken: down to images, which must be mirrored so.
    MirrorSnapshot,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LevelSpec {
    pub(super) name: String,
    pub(super) id: String,
    pool: Option<i64>,
    namespace: Option<String>,
    /// Its id.
    image: Option<String>,
}

/// Why there is no such level.
#[derive(Debug)]
pub(super) enum LevelError {
    /// As Ceph says it.
    Invalid(String),
    /// The cluster did not answer.
    Client(ClientError),
}

impl From<ClientError> for LevelError {
    fn from(error: ClientError) -> LevelError {
        LevelError::Client(error)
    }
}

fn invalid<T>(why: String) -> Result<T, LevelError> {
    Err(LevelError::Invalid(why))
}

/// `None` for what is not there.
pub(super) fn found<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(None),
        other => other.map(Some),
    }
}

/// The namespace of a pool, which must be there.
async fn open(
    client: &Client,
    pool: &str,
    namespace: &str,
    check_mode: bool,
) -> Result<IoCtx, LevelError> {
    let io = client.io_ctx(pool).await?;
    if namespace.is_empty() {
        return Ok(io);
    }
    if !rbd::namespace_list(&io).await?.iter().any(|name| name == namespace) {
        return invalid(format!("namespace {namespace} does not exist"));
    }
    let io = io.with_namespace(namespace);
    if check_mode && rbd::mirror_mode(&io).await? != CHOSEN_IMAGES {
        return invalid(format!("namespace {namespace} is not in mirror image mode"));
    }
    Ok(io)
}

/// The mirror mode in which images are chosen one by one.
const CHOSEN_IMAGES: u32 = 1;

impl LevelSpec {
    pub(super) fn is_global(&self) -> bool {
        self.pool.is_none()
    }

    pub(super) fn pool(&self) -> Option<i64> {
        self.pool
    }

    /// By name; the parts must exist and be fit for what is to be done.
    pub(super) async fn from_name(
        client: &Client,
        kind: Kind,
        name: &str,
    ) -> Result<LevelSpec, LevelError> {
        if name.is_empty() {
            return Ok(LevelSpec::default());
        }
        let parts: Vec<&str> = name.split('/').collect();
        let (pool, namespace, image) = match parts.as_slice() {
            [pool, image] => (*pool, None, *image),
            [pool, namespace, image] => (*pool, Some(*namespace), *image),
            _ => return invalid(format!("failed to parse {name}")),
        };
        if pool.is_empty() || image.contains('@') {
            return invalid(format!("failed to parse {name}"));
        }
        if !image.is_empty() && kind == Kind::TrashPurge {
            return invalid(format!("invalid name {name}: image level is not allowed"));
        }
        let Some(pool_id) = found(client.pool_lookup(pool).await)? else {
            return invalid(format!("pool {pool} does not exist"));
        };
        if !rbd_pools(client).contains_key(&pool_id) {
            return invalid(format!("{pool} is not an RBD pool"));
        }
        let mut spec = LevelSpec {
            name: name.to_owned(),
            id: pool_id.to_string(),
            pool: Some(pool_id),
            ..LevelSpec::default()
        };
        if namespace.is_none() && image.is_empty() {
            return Ok(spec);
        }
        let namespace = namespace.unwrap_or_default();
        spec.namespace = Some(namespace.to_owned());
        spec.id += &format!("/{namespace}");
        let io = open(client, pool, namespace, kind == Kind::MirrorSnapshot).await?;
        if image.is_empty() {
            return Ok(spec);
        }
        let Some(id) = found(rbd::image_id(&io, image).await)? else {
            return invalid(format!("image {image} does not exist"));
        };
        check_image(&io, &id, image).await?;
        spec.id += &format!("/{id}");
        spec.image = Some(id);
        if namespace.is_empty() {
            spec.name = format!("{pool}/{image}");
        }
        Ok(spec)
    }

    /// By id, as schedules are stored.
    pub(super) async fn from_id(
        client: &Client,
        kind: Kind,
        id: &str,
    ) -> Result<LevelSpec, LevelError> {
        let parts: Vec<&str> = id.split('/').collect();
        let (pool, namespace, image) = match parts.as_slice() {
            [pool] => (*pool, None, None),
            [pool, namespace] => (*pool, Some(*namespace), None),
            [pool, namespace, image] => (*pool, Some(*namespace), Some(*image)),
            _ => return invalid(format!("failed to parse: {id}")),
        };
        let Ok(pool_id) = pool.parse::<i64>() else {
            return invalid(format!("failed to parse: {id}"));
        };
        let pool_name = client.osdmap().pool_names.get(&pool_id).cloned();
        let Some(pool) = pool_name else {
            return invalid(format!("pool {pool_id} does not exist"));
        };
        let mut spec = LevelSpec {
            name: format!("{pool}/"),
            id: id.to_owned(),
            pool: Some(pool_id),
            namespace: namespace.map(str::to_owned),
            image: image.map(str::to_owned),
        };
        let Some(namespace) = namespace else { return Ok(spec) };
        let io = open(client, &pool, namespace, false).await?;
        if !namespace.is_empty() || image.is_none() {
            spec.name += &format!("{namespace}/");
        }
        let Some(image) = image else { return Ok(spec) };
        let Some(name) = found(rbd::image_name(&io, image).await)? else {
            return invalid(format!("image {image} does not exist"));
        };
        if kind == Kind::MirrorSnapshot {
            check_image(&io, image, image).await?;
        }
        spec.name += &name;
        Ok(spec)
    }

    pub(super) fn of_pool(pool: i64) -> LevelSpec {
        LevelSpec { pool: Some(pool), ..LevelSpec::default() }
    }

    pub(super) fn of_namespace(pool: i64, namespace: &str) -> LevelSpec {
        LevelSpec { namespace: Some(namespace.to_owned()), ..LevelSpec::of_pool(pool) }
    }

    /// Whether it lies within another, and is not it.
    pub(super) fn is_child_of(&self, other: &LevelSpec) -> bool {
        match (other.pool, &other.namespace, &other.image) {
            (None, ..) => !self.is_global(),
            (pool, ..) if pool != self.pool => false,
            (_, None, _) => self.namespace.is_some(),
            (_, namespace, _) if *namespace != self.namespace => false,
            (_, _, None) => self.image.is_some(),
            _ => false,
        }
    }

    /// Whether it covers this thing.
    pub(super) fn matches(&self, pool: i64, namespace: &str, image: Option<&str>) -> bool {
        let named = self.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        self.pool.is_none_or(|own| own == pool)
            && named.is_none_or(|own| own == namespace)
            && self.image.as_deref().is_none_or(|own| Some(own) == image)
    }

    /// Whether the two have anything in common.
    pub(super) fn intersects(&self, other: &LevelSpec) -> bool {
        fn agree<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> Option<bool> {
            match (a, b) {
                (Some(a), Some(b)) if a == b => None,
                (Some(_), Some(_)) => Some(false),
                _ => Some(true),
            }
        }
        agree(&self.pool, &other.pool)
            .or_else(|| agree(&self.namespace, &other.namespace))
            .or_else(|| agree(&self.image, &other.image))
            .unwrap_or(true)
    }
}

/// Images must be mirrored by snapshots.
async fn check_image(io: &IoCtx, id: &str, shown: &str) -> Result<(), LevelError> {
    let mirrored = rbd::mirror_image(io, id).await?;
    if mirrored.is_some_and(|image| image.mode == rbd::BY_SNAPSHOT) {
        return Ok(());
    }
    invalid(format!("image {shown} is not in snapshot mirror mode"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(pool: Option<i64>, namespace: Option<&str>, image: Option<&str>) -> LevelSpec {
        LevelSpec {
            pool,
            namespace: namespace.map(str::to_owned),
            image: image.map(str::to_owned),
            ..LevelSpec::default()
        }
    }

    #[test]
    fn levels_nest() {
        let all = spec(None, None, None);
        let pool = spec(Some(2), None, None);
        let namespace = spec(Some(2), Some(""), None);
        let image = spec(Some(2), Some(""), Some("x"));
        let line = [&all, &pool, &namespace, &image];
        for (i, lower) in line.iter().enumerate() {
            for (j, upper) in line.iter().enumerate() {
                assert_eq!(lower.is_child_of(upper), i > j, "{i} {j}");
                assert!(lower.intersects(upper));
            }
        }
        assert!(!spec(Some(3), None, None).intersects(&pool));
        assert!(!spec(Some(2), Some("a"), None).intersects(&namespace));
        assert!(pool.matches(2, "a", None) && !pool.matches(3, "a", None));
        assert!(!image.matches(2, "", Some("y")) && image.matches(2, "", Some("x")));
    }
}
