//! Calls that release 16.2.15's own class has answered, drawn at random: `real-16.2.15.bin` has
//! each with its answer and a sum of the object after it.
//!
//! ```text
//! u32 count, count times:
//!   string method, blob input    no method: a new object
//!   i32 result, blob output      the output counts if the result is no error, or EFBIG
//!   utime now, u32 crc32c        of the header, the omap and the xattrs, each counted
//! ```

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Writer};
use types::crc::crc32c;
use types::{Errno, UTime};

use super::super::CLASS;
use super::TestObject;

type Call = ((BString, Bytes), (i32, Bytes), (UTime, u32));

const REAL: &[u8] = include_bytes!("real-16.2.15.bin");

fn sum(object: &TestObject) -> u32 {
    let mut w = Writer::new();
    w.put(&object.header);
    w.put(&object.omap);
    w.put(&object.attrs);
    crc32c(u32::MAX, &w.into_bytes())
}

#[test]
fn the_answers_are_those_of_a_real_osd() {
    let calls = Vec::<Call>::from_bytes_exact(&Bytes::from_static(REAL)).unwrap();
    let asked = |name: &str| calls.iter().any(|((method, _), _, _)| method == name);
    assert!(CLASS.methods.iter().all(|method| asked(method.name)));
    let mut object = TestObject::default();
    for (n, ((method, input), (result, output), (now, crc))) in calls.into_iter().enumerate() {
        if method.is_empty() {
            object = TestObject::default();
            continue;
        }
        object.now = now;
        let (ours, data) = match object.call_as_osd("rgw", &method.to_string(), &input) {
            Ok(answer) => (answer.result, answer.data),
            Err(errno) => (errno.result(), Bytes::new()),
        };
        assert_eq!(ours, result, "call {n}: {method}");
        if result >= 0 || result == Errno::EFBIG.result() {
            assert_eq!(data, output, "call {n}: {method}");
        }
        assert_eq!(sum(&object), crc, "the object after call {n}: {method}");
    }
}
