//! The haggling: which export, in which form. Ends with an export or with the connection.

use std::io;
use std::rc::Rc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use env::Stream;

use super::incoming::Incoming;
use super::server::Export;
use super::wire::{
    ALLOCATION, ALLOCATION_ID, FIXED_NEWSTYLE, MAGIC, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    PAYLOAD_MAX, PREFERRED_BLOCK, answer, info, option,
};

/// Why an image that others have taken is not given out.
const REOPEN: &str = "the image has to be opened again";
/// Bytes of an option's data; more is refused (names have 4096 at most).
const OPTION_MAX: u32 = 64 << 10;
/// Options of one client; who haggles longer is sent away.
const OPTIONS_MAX: usize = 1024;

/// What was agreed.
pub(super) struct Agreed {
    pub(super) export: Rc<Export>,
    pub(super) structured: bool,
    /// The client may ask for `base:allocation`.
    pub(super) allocation: bool,
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// As it should.
    Done,
    /// The peer broke the protocol: what it did.
    Malformed(String),
    /// The connection broke.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> End {
        End::Io(e)
    }
}

struct Haggling<'a> {
    stream: &'a Rc<dyn Stream>,
    exports: &'a [Rc<Export>],
    structured: bool,
    /// The export `base:allocation` was asked for, and whether it was.
    context: Option<(Bytes, bool)>,
}

/// Haggles.
pub(super) async fn negotiate(
    stream: &Rc<dyn Stream>,
    incoming: &mut Incoming,
    exports: &[Rc<Export>],
) -> Result<Agreed, End> {
    let mut hello = BytesMut::new();
    hello.put_u64(MAGIC);
    hello.put_u64(OPTION_MAGIC);
    hello.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
    stream.send(vec![hello.freeze()]).await?;
    let flags = incoming.u32().await?;
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(End::Malformed(format!("unknown client flags {flags:#x}")));
    }
    let no_zeroes = flags & u32::from(NO_ZEROES) != 0;
    let mut haggling = Haggling { stream, exports, structured: false, context: None };
    for _ in 0..OPTIONS_MAX {
        let magic = incoming.u64().await?;
        if magic != OPTION_MAGIC {
            return Err(End::Malformed(format!("an option begins with {magic:#x}")));
        }
        let (code, len) = (incoming.u32().await?, incoming.u32().await?);
        if len > OPTION_MAX {
            return Err(End::Malformed(format!("option {code} of {len} bytes")));
        }
        let data = incoming.take(len as usize).await?;
        if let Some(agreed) = haggling.option(code, data, no_zeroes).await? {
            return Ok(agreed);
        }
    }
    Err(End::Malformed(format!("more than {OPTIONS_MAX} options")))
}

impl Haggling<'_> {
    async fn option(
        &mut self,
        code: u32,
        data: Bytes,
        no_zeroes: bool,
    ) -> Result<Option<Agreed>, End> {
        match code {
            option::EXPORT_NAME => {
                let Some(export) = self.find(&data) else {
                    let name = String::from_utf8_lossy(&data);
                    return Err(End::Malformed(format!("there is no export {name:?}")));
                };
                // This option has no answer that refuses.
                if export.image.is_fenced() {
                    return Err(End::Malformed(format!("{}: {REOPEN}", export.name)));
                }
                let mut reply = BytesMut::new();
                reply.put_u64(export.size());
                reply.put_u16(export.flags(self.structured));
                if !no_zeroes {
                    reply.put_bytes(0, 124);
                }
                self.stream.send(vec![reply.freeze()]).await?;
                return Ok(Some(self.agree(export, &data)));
            }
            option::ABORT => {
                let _ = self.reply(code, answer::ACK, &[]).await;
                return Err(End::Done);
            }
            option::LIST if !data.is_empty() => self.refuse(code, "LIST has no data").await?,
            option::LIST => {
                for export in self.exports {
                    let name = export.name.as_bytes();
                    let mut entry = BytesMut::new();
                    entry.put_u32(name.len() as u32);
                    entry.put_slice(name);
                    self.reply(code, answer::SERVER, &entry).await?;
                }
                self.reply(code, answer::ACK, &[]).await?;
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.reply(code, answer::ACK, &[]).await?;
            }
            option::STRUCTURED_REPLY => self.refuse(code, "STRUCTURED_REPLY has no data").await?,
            option::INFO | option::GO => return self.info(code, data).await,
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(code, data).await?;
            }
            option::STARTTLS => {
                self.reply(code, answer::ERR_POLICY, b"this server does not encrypt").await?;
            }
            _ => self.reply(code, answer::ERR_UNSUP, b"unknown option").await?,
        }
        Ok(None)
    }

    fn find(&self, name: &[u8]) -> Option<Rc<Export>> {
        if name.is_empty() {
            return self.exports.first().cloned();
        }
        self.exports.iter().find(|export| export.name.as_bytes() == name).cloned()
    }

    fn agree(&self, export: Rc<Export>, name: &Bytes) -> Agreed {
        let asked = self.context.as_ref().is_some_and(|(of, asked)| of == name && *asked);
        Agreed { export, structured: self.structured, allocation: asked && self.structured }
    }

    async fn reply(&self, code: u32, kind: u32, data: &[u8]) -> Result<(), End> {
        let mut reply = BytesMut::with_capacity(20 + data.len());
        reply.put_u64(OPTION_REPLY_MAGIC);
        reply.put_u32(code);
        reply.put_u32(kind);
        reply.put_u32(data.len() as u32);
        reply.put_slice(data);
        Ok(self.stream.send(vec![reply.freeze()]).await?)
    }

    async fn refuse(&self, code: u32, why: &str) -> Result<(), End> {
        self.reply(code, answer::ERR_INVALID, why.as_bytes()).await
    }

    async fn info(&self, code: u32, data: Bytes) -> Result<Option<Agreed>, End> {
        let Some((name, wanted)) = parse_info(data) else {
            self.refuse(code, "lengths do not fit").await?;
            return Ok(None);
        };
        let Some(export) = self.find(&name) else {
            self.reply(code, answer::ERR_UNKNOWN, b"there is no such export").await?;
            return Ok(None);
        };
        if export.image.is_fenced() {
            self.reply(code, answer::ERR_SHUTDOWN, REOPEN.as_bytes()).await?;
            return Ok(None);
        }
        let mut main = BytesMut::new();
        main.put_u16(info::EXPORT);
        main.put_u64(export.size());
        main.put_u16(export.flags(self.structured));
        self.reply(code, answer::INFO, &main).await?;
        let texts = [(info::NAME, export.name.as_str()), (info::DESCRIPTION, "image of a cluster")];
        for (kind, text) in texts.iter().filter(|(kind, _)| wanted.contains(kind)) {
            let mut item = BytesMut::new();
            item.put_u16(*kind);
            item.put_slice(text.as_bytes());
            self.reply(code, answer::INFO, &item).await?;
        }
        let mut sizes = BytesMut::new();
        sizes.put_u16(info::BLOCK_SIZE);
        [1, PREFERRED_BLOCK, PAYLOAD_MAX].iter().for_each(|size| sizes.put_u32(*size));
        self.reply(code, answer::INFO, &sizes).await?;
        self.reply(code, answer::ACK, &[]).await?;
        Ok((code == option::GO).then(|| self.agree(export, &name)))
    }

    async fn meta_context(&mut self, code: u32, data: Bytes) -> Result<(), End> {
        let set = code == option::SET_META_CONTEXT;
        if set {
            self.context = None;
        }
        if !self.structured {
            return self.refuse(code, "ask for STRUCTURED_REPLY first").await;
        }
        let Some((name, queries)) = parse_queries(data) else {
            return self.refuse(code, "lengths do not fit").await;
        };
        if self.find(&name).is_none() {
            return self.reply(code, answer::ERR_UNKNOWN, b"there is no such export").await;
        }
        let means_it = |query: &Bytes| match set {
            true => query == ALLOCATION,
            false => query == ALLOCATION || query == "base:",
        };
        let found = queries.iter().any(means_it) || (!set && queries.is_empty());
        if found {
            let mut reply = BytesMut::new();
            reply.put_u32(if set { ALLOCATION_ID } else { 0 });
            reply.put_slice(ALLOCATION.as_bytes());
            self.reply(code, answer::META_CONTEXT, &reply).await?;
        }
        if set {
            self.context = Some((name, found));
        }
        self.reply(code, answer::ACK, &[]).await
    }
}

fn parse_name(data: &mut Bytes) -> Option<Bytes> {
    let len = data.try_get_u32().ok()? as usize;
    (len <= data.len()).then(|| data.split_to(len))
}

fn parse_info(mut data: Bytes) -> Option<(Bytes, Vec<u16>)> {
    let name = parse_name(&mut data)?;
    let count = usize::from(data.try_get_u16().ok()?);
    if data.len() != 2 * count {
        return None;
    }
    Some((name, (0..count).map(|_| data.get_u16()).collect()))
}

fn parse_queries(mut data: Bytes) -> Option<(Bytes, Vec<Bytes>)> {
    let name = parse_name(&mut data)?;
    let count = data.try_get_u32().ok()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(parse_name(&mut data)?);
    }
    data.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut good = BytesMut::new();
        good.put_u32(3);
        good.put_slice(b"abc");
        good.put_u16(1);
        good.put_u16(3);
        let good = good.freeze();
        assert_eq!(parse_info(good.clone()), Some((Bytes::from("abc"), vec![3])));
        for cut in 0..good.len() {
            assert_eq!(parse_info(good.slice(..cut)), None);
        }
        let mut many = BytesMut::new();
        many.put_u32(0);
        many.put_u32(u32::MAX);
        assert_eq!(parse_queries(many.freeze()), None);
    }
}
