//! `loligo nbd list`: what a server offers.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use env::{Env, Stream};

use super::incoming::Incoming;
use super::wire::{
    FIXED_NEWSTYLE, MAGIC, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, answer, export_flags, info,
    option,
};
use crate::block::spec::bytes_text;
use crate::failure::Failure;
use crate::output::show;

/// How long a server gets to answer all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Exports listed at most.
const EXPORTS_MAX: usize = 65536;
/// Bytes of one answer.
const ANSWER_MAX: u32 = 1 << 20;

/// Runs the command.
pub(super) fn run(server: &str) -> Result<(), Failure> {
    let server = server.to_owned();
    env::real::Runtime::new()?.block_on(|env: Env| async move {
        let listing = list(&env, &server);
        env.timeout(PATIENCE, listing)
            .await
            .unwrap_or_else(|_| Err(Failure::new(format!("{server} does not answer"))))
    })
}

async fn list(env: &Env, server: &str) -> Result<(), Failure> {
    let cannot = |e: std::io::Error| Failure::new(format!("{server}: {e}"));
    let stream = match server.strip_prefix("unix:") {
        Some(path) => env.connect_unix(Path::new(path)).await.map_err(cannot)?,
        None => {
            let addr = server
                .parse()
                .map_err(|_| Failure::new(format!("{server}: write ADDRESS:PORT or unix:PATH")))?;
            env.connect(addr).await.map_err(cannot)?
        }
    };
    let mut asking = Asking { incoming: Incoming::new(stream.clone()), stream };
    let (magic, style) = (asking.incoming.u64().await?, asking.incoming.u64().await?);
    let flags = asking.incoming.u16().await?;
    if magic != MAGIC || style != OPTION_MAGIC || flags & FIXED_NEWSTYLE == 0 {
        return Err(Failure::new(format!("{server} does not speak NBD's fixed newstyle")));
    }
    let flags = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
    asking.stream.send(vec![Bytes::copy_from_slice(&flags.to_be_bytes())]).await?;
    let mut names = Vec::new();
    asking.send(option::LIST, &[]).await?;
    while let Some((kind, mut data)) = asking.answer(option::LIST).await?? {
        if kind == answer::SERVER && data.len() >= 4 {
            let len = (data.get_u32() as usize).min(data.len());
            names.push(data.split_to(len));
        }
        if names.len() > EXPORTS_MAX {
            return Err(Failure::new(format!("{server} lists more than {EXPORTS_MAX} exports")));
        }
    }
    show!("{:<40} {:>12}  CAN", "EXPORT", "SIZE");
    for name in names {
        let mut ask = BytesMut::new();
        ask.put_u32(name.len() as u32);
        ask.put_slice(&name);
        ask.put_u16(0);
        asking.send(option::INFO, &ask).await?;
        let text = String::from_utf8_lossy(&name).into_owned();
        loop {
            let (kind, mut data) = match asking.answer(option::INFO).await? {
                Ok(Some(answer)) => answer,
                Ok(None) => break,
                // Of this one it tells nothing; the others can be used.
                Err(Refusal(why)) => {
                    show!("{text:<40} {:>12}  {why}", "-");
                    break;
                }
            };
            if kind == answer::INFO && data.len() >= 12 && data.get_u16() == info::EXPORT {
                let (size, flags) = (data.get_u64(), data.get_u16());
                let can = export_flags::NAMES.iter().filter(|(bit, _)| flags & bit != 0);
                let can: Vec<&str> = can.map(|(_, name)| *name).collect();
                show!("{text:<40} {:>12}  {}", bytes_text(size), can.join(","));
            }
        }
    }
    asking.send(option::ABORT, &[]).await?;
    Ok(())
}

/// Why a server refuses.
struct Refusal(String);

impl From<Refusal> for Failure {
    fn from(Refusal(why): Refusal) -> Failure {
        Failure::new(format!("the server refuses to list: {why}"))
    }
}

struct Asking {
    stream: Rc<dyn Stream>,
    incoming: Incoming,
}

impl Asking {
    async fn send(&self, code: u32, data: &[u8]) -> Result<(), Failure> {
        let mut ask = BytesMut::new();
        ask.put_u64(OPTION_MAGIC);
        ask.put_u32(code);
        ask.put_u32(data.len() as u32);
        ask.put_slice(data);
        Ok(self.stream.send(vec![ask.freeze()]).await?)
    }

    /// The next answer, `None` for the last; or that it is refused.
    async fn answer(
        &mut self,
        code: u32,
    ) -> Result<Result<Option<(u32, Bytes)>, Refusal>, Failure> {
        let incoming = &mut self.incoming;
        let (magic, of) = (incoming.u64().await?, incoming.u32().await?);
        let (kind, len) = (incoming.u32().await?, incoming.u32().await?);
        if magic != OPTION_REPLY_MAGIC || of != code || len > ANSWER_MAX {
            return Err(Failure::new("the server's answer is not NBD's"));
        }
        let data = incoming.take(len as usize).await?;
        Ok(match kind {
            answer::ACK => Ok(None),
            kind if kind & 1 << 31 != 0 => {
                Err(Refusal(String::from_utf8_lossy(&data).into_owned()))
            }
            kind => Ok(Some((kind, data))),
        })
    }
}
