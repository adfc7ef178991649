//! Files of results: written whole after every finished piece, so that what is there is complete
//! and a run that was interrupted goes on.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::LabError;
use crate::cli::CommonArgs;

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let fail = |e: std::io::Error| LabError::new(format!("cannot write {}: {e}", path.display()));
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(fail)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, content).map_err(fail)?;
    fs::rename(&new, path).map_err(fail)
}

/// Writes JSON.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), LabError> {
    write(path, format!("{value:#}\n").as_bytes())
}

/// Reads JSON; `None` if there is none.
pub(crate) fn read_json(path: &Path) -> Result<Option<Value>, LabError> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|e| LabError::new(format!("{}: {e}; --anew forgets it", path.display()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(LabError::new(format!("cannot read {}: {e}", path.display()))),
    }
}

/// What an experiment goes on from: nothing if it is to begin anew, whatever is there.
pub(crate) fn read_kept(path: &Path, anew: bool) -> Result<Option<Value>, LabError> {
    if anew { Ok(None) } else { read_json(path) }
}

/// What all clusters were made with beyond the usual, among the conditions.
pub(crate) fn note_choices(conditions: &mut Value, common: &CommonArgs) {
    if !common.sets.is_empty() {
        conditions["options"] = Value::from(common.sets.join(" "));
    }
    if let Some(unit) = common.log_unit {
        conditions["file_system_journal_unit"] = Value::from(unit);
    }
}

/// What to say when results are there that another question led to.
pub(crate) fn other_conditions(path: &Path) -> LabError {
    LabError::new(format!(
        "{} was measured under other conditions; --anew forgets it, --out DIR keeps it",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that was damaged was read with --anew, too, and the error said to give --anew.
    #[test]
    fn a_damaged_file_is_forgotten_where_all_begins_anew() {
        let path = std::env::temp_dir().join(format!("lab-results-{}.json", std::process::id()));
        fs::write(&path, "{").unwrap();
        assert!(read_kept(&path, false).unwrap_err().to_string().contains("--anew"));
        assert_eq!(read_kept(&path, true).unwrap(), None);
        fs::remove_file(&path).unwrap();
    }
}
