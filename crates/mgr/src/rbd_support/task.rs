//! One task and its form in the pool's omap (`Task` in
//! `src/pybind/mgr/rbd_support/task.py` at v16.2).

use serde_json::{Map, Value, json};
use types::UTime;

use crate::json;

/// What is done to an image. Ceph's words, stored and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Flatten,
    Remove,
    TrashRemove,
    MigrationExecute,
    MigrationCommit,
    MigrationAbort,
}

const ACTIONS: [(Action, &str); 6] = [
    (Action::Flatten, "flatten"),
    (Action::Remove, "remove"),
    (Action::TrashRemove, "trash remove"),
    (Action::MigrationExecute, "migrate execute"),
    (Action::MigrationCommit, "migrate commit"),
    (Action::MigrationAbort, "migrate abort"),
];

/// Of what is read; others follow it.
const SEQUENCE_MAX: u64 = u64::MAX >> 1;

impl Action {
    fn word(self) -> &'static str {
        ACTIONS.iter().find(|(action, _)| *action == self).map_or("", |(_, word)| word)
    }
}

/// What a task is about; two tasks about the same are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refs {
    pub(super) action: Action,
    pub(super) pool: String,
    pub(super) namespace: String,
    /// None for an image in the trash.
    pub(super) image: Option<String>,
    pub(super) image_id: Option<String>,
}

impl Refs {
    /// Whether `self`, of a task, is what `wanted` asks for. An image that is gone has no id.
    pub(super) fn answers(&self, wanted: &Refs) -> bool {
        let same_id = wanted.image_id.is_none() || self.image_id == wanted.image_id;
        same_id
            && Refs { image_id: None, ..self.clone() } == Refs { image_id: None, ..wanted.clone() }
    }

    fn pairs(&self) -> Vec<(&'static str, &str)> {
        let mut pairs = vec![
            ("action", self.action.word()),
            ("pool_name", &self.pool),
            ("pool_namespace", &self.namespace),
        ];
        pairs.extend(self.image.as_deref().map(|name| ("image_name", name)));
        pairs.extend(self.image_id.as_deref().map(|id| ("image_id", id)));
        pairs
    }

    fn parse(value: &Value) -> Result<Refs, String> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let word = text("action").unwrap_or_default();
        let action = ACTIONS.iter().find(|(_, known)| *known == word);
        let (action, _) = action.ok_or_else(|| format!("Invalid task action: {word}"))?;
        let needed = |key: &str| {
            text(key).ok_or_else(|| format!("Invalid task format (missing key '{key}')"))
        };
        Ok(Refs {
            action: *action,
            pool: needed("pool_name")?,
            namespace: needed("pool_namespace")?,
            image: text("image_name"),
            image_id: text("image_id"),
        })
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Task {
    pub(super) sequence: u64,
    pub(super) id: String,
    pub(super) message: String,
    pub(super) refs: Refs,
    /// The pool it was found or put in, whatever that is called by now; not stored.
    pub(super) pool_id: i64,
    /// Why the last attempt failed.
    pub(super) retry_message: Option<String>,
    pub(super) retry_attempts: u32,
    /// Not before (wall clock).
    pub(super) retry_time: Option<UTime>,
    pub(super) in_progress: bool,
    pub(super) progress: f64,
    pub(super) canceled: bool,
    /// It cannot be done.
    pub(super) failure: Option<String>,
}

impl Task {
    pub(super) fn new(sequence: u64, id: String, message: String, refs: Refs) -> Task {
        Task {
            sequence,
            id,
            message,
            refs,
            pool_id: -1,
            retry_message: None,
            retry_attempts: 0,
            retry_time: None,
            in_progress: false,
            progress: 0.0,
            canceled: false,
            failure: None,
        }
    }

    /// Its key in the omap.
    pub(super) fn key(&self) -> String {
        format!("{:016X}", self.sequence)
    }

    /// As it is stored, and answered when it is added.
    pub(super) fn text(&self) -> String {
        let refs: Vec<(&str, String)> =
            self.refs.pairs().into_iter().map(|(key, v)| (key, json::quoted(v))).collect();
        let mut pairs = vec![
            ("sequence", self.sequence.to_string()),
            ("id", json::quoted(&self.id)),
            ("message", json::quoted(&self.message)),
            ("refs", json::object(&refs)),
        ];
        pairs.extend(self.state().iter().map(|(key, value)| (*key, json::compact(value))));
        json::object(&pairs)
    }

    /// What it is about, for who shows how far it has come.
    pub(super) fn shown_refs(&self) -> Value {
        let mut refs = json!({"origin": "rbd_support"});
        for (key, value) in self.refs.pairs() {
            refs[key] = value.into();
        }
        refs
    }

    /// As it is listed.
    pub(super) fn value(&self) -> Value {
        let refs: Map<String, Value> = self
            .refs
            .pairs()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .collect();
        let mut value = json!({
            "sequence": self.sequence, "id": self.id, "message": self.message, "refs": refs,
        });
        for (key, part) in self.state() {
            value[key] = part;
        }
        value
    }

    fn state(&self) -> Vec<(&'static str, Value)> {
        let mut state = Vec::new();
        state.extend(self.retry_message.as_ref().map(|why| ("retry_message", json!(why))));
        if self.retry_attempts > 0 {
            state.push(("retry_attempts", json!(self.retry_attempts)));
        }
        state.extend(self.retry_time.map(|at| ("retry_time", json!(iso(at)))));
        if self.in_progress {
            state.push(("in_progress", json!(true)));
            state.push(("progress", json!(self.progress)));
        }
        if self.canceled {
            state.push(("canceled", json!(true)));
        }
        state
    }

    /// What `text` (or Ceph) has written; how it went before is not kept.
    pub(super) fn parse(text: &str) -> Result<Task, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("Invalid JSON ({e})"))?;
        let refs = Refs::parse(&value["refs"])?;
        let missing = |key: &str| format!("Invalid task format (missing key '{key}')");
        let text = |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(|| missing(key));
        let sequence = value["sequence"].as_u64().filter(|n| *n <= SEQUENCE_MAX);
        let sequence = sequence.ok_or_else(|| missing("sequence"))?;
        Ok(Task::new(sequence, text("id")?, text("message")?, refs))
    }
}

/// `2021-03-04T05:06:07.123456`.
fn iso(at: UTime) -> String {
    at.gmtime().to_string().trim_end_matches('Z').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        let refs = Refs {
            action: Action::Flatten,
            pool: "rbd".into(),
            namespace: String::new(),
            image: Some("é".into()),
            image_id: Some("10".into()),
        };
        Task::new(26, "uuid".into(), "Flattening image rbd/é".into(), refs)
    }

    #[test]
    fn stored_as_ceph_stores_it() {
        let text = r#"{"sequence": 26, "id": "uuid", "message": "Flattening image rbd/\u00e9", "refs": {"action": "flatten", "pool_name": "rbd", "pool_namespace": "", "image_name": "\u00e9", "image_id": "10"}}"#;
        assert_eq!(task().text(), text);
        assert_eq!(Task::parse(text).unwrap(), task());
        assert_eq!(task().key(), "000000000000001A");
        assert!(Task::parse(&text.replace("flatten\"", "eat\"")).is_err());
        assert!(Task::parse(&text.replace("sequence", "s")).is_err());
        for cut in 0..text.len() - 1 {
            assert!(Task::parse(text.get(..cut).unwrap_or_default()).is_err());
        }
    }

    #[test]
    fn how_it_goes_is_shown() {
        let shown = Task {
            retry_message: Some("[errno 16] RBD image is busy (x)".into()),
            retry_attempts: 1,
            retry_time: Some(UTime::new(1_614_834_367, 123_456_000)),
            ..task()
        };
        let value = shown.value();
        assert_eq!(value["retry_time"], "2021-03-04T05:06:07.123456");
        assert_eq!(value["retry_attempts"], 1);
        assert!(value.get("progress").is_none());
    }

    #[test]
    fn the_same_work_is_one_task() {
        let by_name = Refs { image_id: None, ..task().refs };
        assert!(task().refs.answers(&by_name));
        let another = Refs { image_id: Some("11".into()), ..task().refs };
        assert!(!task().refs.answers(&another));
    }
}
