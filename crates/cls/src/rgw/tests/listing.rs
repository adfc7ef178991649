//! `bucket_list`.

use bstr::BString;
use denc::Denc;
use types::Errno;

use super::super::entry::{DirEntry, FLAG_COMMON_PREFIX, FLAG_CURRENT, FLAG_VER};
use super::super::key::{self, ObjKey};
use super::super::list::{ListOp, ListRet};
use super::{TestObject, index, object_key};

fn bucket(names: &[&str]) -> TestObject {
    let mut object = index();
    for name in names {
        object.add(object_key(name, ""), 1);
    }
    object
}

fn page(count: u32) -> ListOp {
    ListOp { num_entries: count, ..ListOp::default() }
}

impl TestObject {
    fn list(&mut self, op: &ListOp) -> ListRet {
        let output = self.output("bucket_list", op).unwrap();
        ListRet::from_bytes_exact(&output.data).unwrap()
    }

    fn names(&mut self, op: &ListOp) -> Vec<String> {
        let ret = self.list(op);
        ret.dir.entries.into_values().map(|entry| entry.key.name.to_string()).collect()
    }

    /// Page by page, as a gateway goes on.
    fn all_names(&mut self, mut op: ListOp) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let ret = self.list(&op);
            names.extend(ret.dir.entries.values().map(|entry| entry.key.name.to_string()));
            if !ret.is_truncated {
                return names;
            }
            op.start_obj = ret.marker;
        }
    }

    /// A version in the listing.
    fn put_version(&mut self, key: ObjKey, epoch: u64, flags: u16) {
        let entry = DirEntry {
            flags: FLAG_VER | flags,
            versioned_epoch: epoch,
            exists: true,
            key,
            ..DirEntry::default()
        };
        let bytes = entry.to_bytes();
        self.omap.insert(key::list_key(&entry.key, epoch), bytes.clone());
        self.omap.insert(key::instance_key(&entry.key), bytes);
    }
}

/// Special keys stand between ASCII names and the others, and no page is shorter for them.
#[test]
fn special_keys_are_not_listed() {
    let mut object = bucket(&["a", "b", "é", "日"]);
    for n in 0..5 {
        object.omap.insert(key::log_key(format!("{n}").as_bytes()), Default::default());
    }
    assert_eq!(object.names(&page(10)), ["a", "b", "é", "日"]);
    assert_eq!(object.names(&page(3)), ["a", "b", "é"]);
    for count in 1..5 {
        assert_eq!(object.all_names(page(count)), ["a", "b", "é", "日"]);
    }
}

#[test]
fn a_listing_of_none_is_the_header() {
    let mut object = bucket(&["a"]);
    let ret = object.list(&page(0));
    assert_eq!(ret.dir.header, object.index_header());
    assert!(ret.dir.entries.is_empty() && !ret.is_truncated);
}

#[test]
fn prefix_and_delimiter() {
    let mut object = bucket(&["a", "d/1", "d/2", "d/e/1", "d/e/2", "d0", "dz/9", "é/1", "é/2"]);
    let op = ListOp { delimiter: "/".into(), ..page(100) };
    let ret = object.list(&op);
    let shown: Vec<_> = ret.dir.entries.iter().map(|(key, e)| (key.to_string(), e.flags)).collect();
    let prefix = |name: &str| (name.to_owned(), FLAG_COMMON_PREFIX);
    let name = |name: &str| (name.to_owned(), 0);
    assert_eq!(shown, [name("a"), prefix("d/"), name("d0"), prefix("dz/"), prefix("é/")]);
    for count in 1..6 {
        let op = ListOp { num_entries: count, ..op.clone() };
        assert_eq!(object.all_names(op), ["a", "d/", "d0", "dz/", "é/"], "pages of {count}");
    }
    let inside = ListOp { filter_prefix: "d/".into(), ..op.clone() };
    assert_eq!(object.names(&inside), ["d/1", "d/2", "d/e/"]);
    // After a prefix means after all of it.
    let after = ListOp { start_obj: object_key("d/", ""), ..op.clone() };
    assert_eq!(object.names(&after), ["d0", "dz/", "é/"]);
    let long = ListOp { delimiter: "/e/".into(), ..op };
    assert_eq!(object.names(&long)[..4], ["a", "d/1", "d/2", "d/e/"]);
}

#[test]
fn versions_are_shown_if_asked_for() {
    let mut object = bucket(&["a"]);
    object.put_version(object_key("v", "i1"), 2, 0);
    object.put_version(object_key("v", "i2"), 3, FLAG_CURRENT);
    assert_eq!(object.names(&page(9)), ["a", "v"]);
    let mut op = ListOp { list_versions: true, ..page(9) };
    let mut instances = |op: &ListOp| -> Vec<BString> {
        object.list(op).dir.entries.into_values().map(|entry| entry.key.instance).collect()
    };
    assert_eq!(instances(&op), ["", "i2", "i1"]);
    op.start_obj = object_key("v", "i2");
    assert_eq!(instances(&op), ["i1"]);
    // Behind all versions, if that one is not known any more.
    op.start_obj = object_key("v", "gone");
    assert_eq!(instances(&op), [""; 0]);
    // Without versions the name a listing starts after is not shown again.
    let op = ListOp { start_obj: object_key("v", ""), ..page(9) };
    assert_eq!(instances(&op), [""; 0]);
}

/// The listing gives up after some pages of what nobody sees: an error that carries where to go on.
#[test]
fn a_page_of_nothing_says_where_to_go_on() {
    let mut object = bucket(&["z"]);
    for n in 0..30 {
        object.put_version(object_key(&format!("v{n:02}"), "i"), 2, 0);
    }
    let output = object.output("bucket_list", &page(1)).unwrap();
    assert_eq!(output.result, -Errno::EFBIG.0);
    let ret = ListRet::from_bytes_exact(&output.data).unwrap();
    assert!(ret.is_truncated && ret.dir.entries.is_empty());
    assert_eq!(ret.marker, object_key("v07", "i"));
    assert_eq!(object.all_names(page(1)), ["z"]);
}
