//! The admin socket: `ceph daemon NAME COMMAND` over a unix socket
//! (`src/common/admin_socket.cc` at v16.2).
//!
//! ```text
//! request:  one JSON object, or a bare word, up to a zero byte or a line feed
//! answer:   u32 length, big-endian; that many bytes of output
//! ```
//! A failed command's output begins with `ERROR: (errno) name`.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use command::CommandReply;
use env::{Env, Listener, LocalFuture, Stream};
use types::Errno;

/// Longest request read; longer ones are closed without an answer.
const REQUEST_LEN_MAX: usize = 64 << 10;
/// Longest answer [`ask`] takes.
const ANSWER_LEN_MAX: usize = 16 << 20;

/// How often a socket in use is tried again, and after what pause: 5 s in all.
const LISTEN_TRIES: usize = 50;
const LISTEN_PAUSE: Duration = Duration::from_millis(100);
/// Pause after nobody could be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers one command, given as JSON text.
pub(crate) type Handler = Rc<dyn Fn(String) -> LocalFuture<CommandReply>>;

/// A socket that is served; its name goes with this, as with Ceph's daemons: it would be in the way of another user's.
#[must_use]
pub(crate) struct Served {
    path: PathBuf,
    is_ours: Rc<Cell<bool>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.is_ours.get() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on `path` until the process ends. A socket that cannot be made is logged, not fatal:
/// the daemon serves without it, as Ceph's do.
pub(crate) fn serve(env: &Env, path: PathBuf, handler: Handler) -> Served {
    let env_of_clients = env.clone();
    let served = Served { path: path.clone(), is_ours: Rc::default() };
    let is_ours = served.is_ours.clone();
    env.go(async move {
        let listener = match listen(&env_of_clients, &path).await {
            Ok(listener) => listener,
            Err(e) => {
                tracing::warn!("no admin socket at {}: {e}", path.display());
                return;
            }
        };
        is_ours.set(true);
        answer(env_of_clients, listener, handler).await;
    });
    served
}

/// Answers everybody who comes, as long as the process lives.
async fn answer(env: Env, listener: Rc<dyn Listener>, handler: Handler) {
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(e) => {
                // Out of file descriptors, or who came is gone already: others may do better.
                tracing::warn!("admin socket: accept: {e}");
                env.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let handler = handler.clone();
        env.go(async move {
            if let Some(request) = read_request(&*stream).await {
                let reply = handler(request).await;
                let _ = stream.send(vec![encode_reply(&reply)]).await;
            }
            stream.close();
        });
    }
}

/// Waits for a socket that is in use: the kernel may go on accepting for a daemon that was killed a
/// moment ago, and who waits for this one asks it there.
async fn listen(env: &Env, path: &Path) -> io::Result<Rc<dyn Listener>> {
    for _ in 0..LISTEN_TRIES {
        match env.listen_unix(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => env.sleep(LISTEN_PAUSE).await,
            result => return result,
        }
    }
    env.listen_unix(path)
}

/// Asks a daemon on its socket for a command's JSON; `None` while it does not answer.
pub(crate) async fn ask(env: &Env, path: &Path, prefix: &str) -> Option<serde_json::Value> {
    let stream = env.connect_unix(path).await.ok()?;
    let request = serde_json::json!({ "prefix": prefix, "format": "json" });
    stream.send(vec![Bytes::from(format!("{request}\0"))]).await.ok()?;
    const HEAD: usize = 4;
    let mut buf = BytesMut::new();
    loop {
        if let Some((head, body)) = buf.split_first_chunk::<HEAD>() {
            let len = usize::try_from(u32::from_be_bytes(*head)).ok()?;
            if len > ANSWER_LEN_MAX {
                return None;
            }
            if let Some(body) = body.get(..len) {
                return serde_json::from_slice(body).ok();
            }
        }
        buf.reserve(4096);
        let (result, filled) = stream.recv(buf).await;
        buf = filled;
        if !matches!(result, Ok(n) if n > 0) {
            return None;
        }
    }
}

async fn read_request(stream: &dyn Stream) -> Option<String> {
    let mut buf = BytesMut::with_capacity(4096);
    loop {
        if let Some(end) = buf.iter().position(|&b| b == 0 || b == b'\n') {
            let text = String::from_utf8_lossy(&buf[..end]).into_owned();
            return Some(if text.trim_start().starts_with('{') {
                text
            } else {
                serde_json::json!({ "prefix": text.trim() }).to_string()
            });
        }
        if buf.len() >= REQUEST_LEN_MAX {
            return None;
        }
        buf.reserve(4096);
        let (result, filled) = stream.recv(buf).await;
        buf = filled;
        if !matches!(result, Ok(n) if n > 0) {
            return None;
        }
    }
}

fn encode_reply(reply: &CommandReply) -> Bytes {
    let mut out = BytesMut::new();
    if reply.rc < 0 {
        let errno = Errno(-reply.rc);
        out.put_slice(format!("ERROR: {errno}\n").as_bytes());
    }
    // Words are a line of their own: it was not ended, and a shell's prompt stood behind them.
    if (reply.rc < 0 || reply.outb.is_empty()) && !reply.outs.is_empty() {
        out.put_slice(reply.outs.as_bytes());
        out.put_u8(b'\n');
    }
    out.put_slice(&reply.outb);
    let mut framed = BytesMut::with_capacity(out.len() + 4);
    framed.put_u32(u32::try_from(out.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&out);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use env::real::Runtime;

    use super::*;

    /// A listener that first fails a few times.
    struct Failing {
        left: Cell<u32>,
        listener: Rc<dyn Listener>,
    }

    impl Listener for Failing {
        fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
            const EMFILE: i32 = 24;
            match self.left.get() {
                0 => self.listener.accept(),
                left => {
                    self.left.set(left - 1);
                    Box::pin(std::future::ready(Err(io::Error::from_raw_os_error(EMFILE))))
                }
            }
        }

        fn local_addr(&self) -> Option<SocketAddr> {
            None
        }
    }

    /// A daemon that was out of file descriptors for a moment had no admin socket any more.
    #[test]
    fn who_cannot_be_accepted_is_not_the_last() {
        let name = format!("loligo-admin-socket-{}.asok", std::process::id());
        let path = std::env::temp_dir().join(name);
        let answered = Runtime::new().unwrap().block_on({
            let path = path.clone();
            |env| async move {
                let listener = env.listen_unix(&path).unwrap();
                let failing = Rc::new(Failing { left: Cell::new(3), listener });
                let handler: Handler =
                    Rc::new(|_| Box::pin(std::future::ready(CommandReply::data("7"))));
                env.go(answer(env.clone(), failing, handler));
                let asked = env.timeout(Duration::from_secs(60), ask(&env, &path, "any")).await;
                asked.ok().flatten()
            }
        });
        let _ = fs::remove_file(&path);
        assert_eq!(answered, Some(serde_json::json!(7)));
    }

    /// What a command said without data was not a line.
    #[test]
    fn words_end_with_a_line() {
        let told = |reply: CommandReply| encode_reply(&reply)[4..].to_vec();
        assert_eq!(told(CommandReply::text("done")), b"done\n");
        assert_eq!(told(CommandReply::data("{}")), b"{}");
        assert_eq!(told(CommandReply::default()), b"");
        let refused = told(CommandReply::error(22, "no pgid specified"));
        assert_eq!(refused, b"ERROR: (22) Invalid argument\nno pgid specified\n");
    }
}
