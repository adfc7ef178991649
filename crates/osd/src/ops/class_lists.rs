//! Which object classes clients may call (`ClassHandler::in_class_list`, `src/osd/ClassHandler.cc`
//! at v16.2): `osd_class_load_list` and `osd_class_default_list`.

/// The two lists of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassLists {
    /// Classes that may be loaded: a call of any other is EPERM.
    load: ClassList,
    /// Classes that the plain right `x` allows.
    default: ClassList,
}

/// Names; `*` stands for all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClassList(Vec<String>);

impl ClassList {
    fn parse(text: &str) -> ClassList {
        ClassList(text.split_whitespace().map(str::to_string).collect())
    }

    fn has(&self, class: &[u8]) -> bool {
        let named = |name: &String| name == "*" || name.as_bytes() == class;
        self.0.iter().any(named)
    }
}

impl ClassLists {
    /// From the values of `osd_class_load_list` and `osd_class_default_list`: names with blanks
    /// between them.
    pub fn new(load: &str, default: &str) -> ClassLists {
        ClassLists { load: ClassList::parse(load), default: ClassList::parse(default) }
    }

    /// Whether the class may be loaded.
    pub fn may_load(&self, class: &[u8]) -> bool {
        self.load.has(class)
    }

    /// Whether the plain right `x` allows the class.
    pub fn allows(&self, class: &[u8]) -> bool {
        self.default.has(class)
    }
}

impl Default for ClassLists {
    fn default() -> ClassLists {
        let names = "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex \
                     user version cas cmpomap queue 2pc_queue fifo";
        ClassLists::new(names, names)
    }
}
