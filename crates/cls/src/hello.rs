//! Class `hello`: the example class, which tests of the class machinery use
//! (`src/cls/hello/cls_hello.cc` at v16.2).

use bstr::BString;
use bytes::Bytes;
use denc::Reader;
use types::Errno;

use crate::registry::{PglsFilter, class_method as method};
use crate::{Class, Flags, ObjectContext, Output};

/// Longest name greeted.
const NAME_MAX_LEN: usize = 100;
/// What `replay` and `turn_it_to_11` read at most.
const GREETING_MAX_LEN: u64 = 1100;

/// The class.
pub const CLASS: Class = Class {
    name: "hello",
    methods: &[
        method!("say_hello", Flags::RD, say_hello),
        method!("record_hello", Flags::WR.and(Flags::PROMOTE), record_hello),
        method!("write_return_data", Flags::WR, write_return_data),
        // The name before octopus, when the data did not return.
        method!("writes_dont_return_data", Flags::WR, write_return_data),
        method!("write_too_much_return_data", Flags::WR, write_too_much_return_data),
        method!("replay", Flags::RD, replay),
        method!("turn_it_to_11", Flags::RD_WR.and(Flags::PROMOTE), turn_it_to_11),
        method!("bad_reader", Flags::WR, bad_reader),
        method!("bad_writer", Flags::RD, bad_writer),
    ],
    filters: &[("hello", hello_filter)],
};

fn greeting(name: &Bytes) -> Result<Bytes, Errno> {
    if name.len() > NAME_MAX_LEN {
        return Err(Errno::EINVAL);
    }
    let name: &[u8] = if name.is_empty() { b"world" } else { name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

/// The caller as `entity_inst_t` prints.
fn caller_text(ctx: &dyn ObjectContext) -> Bytes {
    let (name, addr) = ctx.caller();
    format!("{name} {addr}").into()
}

async fn say_hello(_ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    greeting(input)
}

async fn record_hello(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let content = greeting(input)?;
    if ctx.stat().await.is_ok() {
        return Err(Errno::EEXIST);
    }
    ctx.write_full(content).await?;
    let caller = caller_text(ctx);
    ctx.setxattr(b"said_by", caller).await
}

async fn write_return_data(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Output, Errno> {
    ctx.setxattr(b"foo", Bytes::from_static(b"bar")).await?;
    if !input.is_empty() {
        let data = Bytes::from_static(b"too much input data!");
        return Ok(Output { result: Errno::EINVAL.result(), data });
    }
    Ok(Output { result: 42, data: Bytes::from_static(b"you might see this") })
}

async fn write_too_much_return_data(
    ctx: &mut dyn ObjectContext,
    _input: &Bytes,
) -> Result<Output, Errno> {
    ctx.setxattr(b"foo", Bytes::from_static(b"bar")).await?;
    let line = b"you should not see this because it is toooooo long. ";
    Ok(Output { result: 42, data: line.repeat(10).into() })
}

async fn replay(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<Bytes, Errno> {
    ctx.read(0, GREETING_MAX_LEN).await
}

async fn turn_it_to_11(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    if !input.is_empty() {
        return Err(Errno::EINVAL);
    }
    let previous = ctx.read(0, GREETING_MAX_LEN).await?;
    ctx.write_full(previous.to_ascii_uppercase().into()).await?;
    let caller = caller_text(ctx);
    ctx.setxattr(b"amplified_by", caller).await
}

/// Says it writes, and reads.
async fn bad_reader(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<Bytes, Errno> {
    ctx.read(0, 100).await
}

/// Says it reads, and writes.
async fn bad_writer(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    ctx.write_full(input.clone()).await
}

/// Lists objects whose xattr has exactly this value.
struct HelloFilter {
    xattr: BString,
    value: BString,
}

impl PglsFilter for HelloFilter {
    fn xattr(&self) -> Option<&[u8]> {
        Some(&self.xattr)
    }
    fn matches(&self, _object: &[u8], value: &[u8]) -> bool {
        self.value == value
    }
}

fn hello_filter(r: &mut Reader<'_>) -> Result<Box<dyn PglsFilter>, Errno> {
    let mut field = || r.get::<BString>().map_err(|_| Errno::EINVAL);
    Ok(Box::new(HelloFilter { xattr: field()?, value: field()? }))
}
