//! The server: exports, listening, and an orderly end.

use std::rc::Rc;
use std::time::Duration;

use client::Client;
use client::rbd::Image;
use env::{Env, Listener, Stream};
use futures_util::future::{Either, join_all, select};

use super::handshake::{End, negotiate};
use super::incoming::Incoming;
use super::transmission;
use super::wire::export_flags;
use crate::block::cli::{ClusterArgs, NbdServeArgs};
use crate::block::connect::{close, connect, open};
use crate::block::requests::tell_of_resizes;
use crate::failure::Failure;
use crate::logging;
use crate::output::tell;

/// Where a server listens by default: the port that IANA gave to NBD.
const DEFAULT_LISTEN: &str = "127.0.0.1:10809";
/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: u64 = 256;
/// Who has not chosen an export by then is sent away: it holds the place of another.
const HAGGLING_MAX: Duration = Duration::from_secs(10);

/// A client that has been silent for so long is asked by the kernel whether it is there: one whose machine is gone
/// would keep its place for ever.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// The protocol knows no notice of another size.
const RESIZED: &str = "clients see the new size when they connect again";

/// An image under a name.
pub(super) struct Export {
    pub(super) name: String,
    pub(super) image: Image,
}

impl Export {
    pub(super) fn size(&self) -> u64 {
        self.image.size()
    }

    /// `export_flags`.
    pub(super) fn flags(&self, structured: bool) -> u16 {
        use export_flags as f;
        // Whatever has been answered is durable and seen by all connections: many are safe.
        let mut flags = f::HAS_FLAGS | f::SEND_FLUSH | f::SEND_FUA | f::CAN_MULTI_CONN;
        flags |= f::SEND_CACHE;
        if structured {
            flags |= f::SEND_DF;
        }
        if self.image.is_read_only() {
            flags | f::READ_ONLY
        } else {
            flags | f::SEND_TRIM | f::SEND_WRITE_ZEROES
        }
    }
}

/// `loligo nbd serve`.
pub(super) fn run(cluster: ClusterArgs, args: NbdServeArgs) -> Result<(), Failure> {
    logging::start();
    env::real::Runtime::new()?.block_on(|env: Env| async move {
        let client = connect(&env, &cluster).await?;
        let mut exports = Vec::new();
        let ended = serve_images(&env, &client, &args, &mut exports).await;
        // Whatever was opened, however it ended: a watch that is left holds others up for 30 s.
        join_all(exports.iter().map(|export| close(&env, &export.image, &export.name))).await;
        client.shutdown();
        ended
    })
}

/// Opens the images, which are added to `exports`, and serves them.
async fn serve_images(
    env: &Env,
    client: &Client,
    args: &NbdServeArgs,
    exports: &mut Vec<Rc<Export>>,
) -> Result<(), Failure> {
    for spec in &args.images {
        let image = open(client, spec, args.read_only).await?;
        exports.push(Rc::new(Export { name: spec.to_string(), image }));
    }
    let (listener, place) = listen(env, args)?;
    for export in exports.iter() {
        tell!("nbd: {} ({} bytes) at {place}", export.name, export.size());
        tell_of_resizes(env, &export.image, RESIZED);
    }
    let ended = accept_until_over(env, listener.clone(), exports.as_slice().into()).await;
    // While it is ours: closing takes its time, and a successor may have its own there by then.
    if let Some(path) = &args.socket {
        let _ = std::fs::remove_file(path);
    }
    drop(listener);
    ended
}

fn listen(env: &Env, args: &NbdServeArgs) -> Result<(Rc<dyn Listener>, String), Failure> {
    if let Some(path) = &args.socket {
        let listener = env
            .listen_unix(path)
            .map_err(|e| Failure::new(format!("cannot listen on {}: {e}", path.display())))?;
        return Ok((listener, format!("unix:{}", path.display())));
    }
    let addr = match args.listen {
        Some(addr) => addr,
        None => DEFAULT_LISTEN.parse().map_err(|_| Failure::new(DEFAULT_LISTEN))?,
    };
    let listener =
        env.listen(addr).map_err(|e| Failure::new(format!("cannot listen on {addr}: {e}")))?;
    let place = listener.local_addr().unwrap_or(addr).to_string();
    Ok((listener, place))
}

/// Until it is told to end, or none of the images can be used any more: whoever starts it again has them opened again.
async fn accept_until_over(
    env: &Env,
    listener: Rc<dyn Listener>,
    exports: Rc<[Rc<Export>]>,
) -> Result<(), Failure> {
    let all_fenced = join_all(exports.iter().map(|export| export.image.fenced()));
    let budget = env::sync::Semaphore::new(CONNECTIONS_MAX);
    let accepting = {
        let (env, exports) = (env.clone(), exports.clone());
        async move {
            loop {
                let place = match budget.try_acquire(1) {
                    Some(place) => place,
                    None => {
                        tracing::warn!(
                            "{CONNECTIONS_MAX} clients are connected, the most there may be: more wait until one leaves"
                        );
                        budget.acquire(1).await
                    }
                };
                match listener.accept().await {
                    Ok(stream) => {
                        let (env, exports) = (env.clone(), exports.clone());
                        env.clone().go(async move {
                            serve(&env, stream, &exports).await;
                            drop(place);
                        });
                    }
                    Err(e) => {
                        tracing::warn!("accept: {e}");
                        env.sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
    };
    let told = env.termination();
    let all_fenced = std::pin::pin!(all_fenced);
    let over = select(all_fenced, told);
    match select(std::pin::pin!(accepting), over).await {
        Either::Right((Either::Left(_), _)) => Err(Failure::new(
            "others have taken the image: start again to open it anew, when it is theirs no more",
        )),
        _ => Ok(()),
    }
}

async fn serve(env: &Env, stream: Rc<dyn Stream>, exports: &[Rc<Export>]) {
    let peer = stream.peer_addr().map_or_else(|| "a local client".to_owned(), |a| a.to_string());
    if let Err(e) = stream.keep_alive(SILENT_MAX) {
        tracing::warn!("{peer} will not be missed if its machine goes: {e}");
    }
    let mut incoming = Incoming::new(stream.clone());
    let agreed = env.timeout(HAGGLING_MAX, negotiate(&stream, &mut incoming, exports)).await;
    let too_long = |_| Err(End::Malformed("it has chosen no export in time".into()));
    let end = match agreed.unwrap_or_else(too_long) {
        Ok(agreed) => {
            tracing::info!("{peer} uses {}", agreed.export.name);
            transmission::transmit(env, &stream, incoming, agreed).await
        }
        Err(end) => end,
    };
    match end {
        End::Done => tracing::info!("{peer} has left"),
        End::Malformed(why) => tracing::warn!("{peer} is sent away: {why}"),
        End::Io(e) => tracing::info!("{peer}: {e}"),
    }
    stream.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients whose machines were gone kept their places until nobody could connect any more.
    #[test]
    fn the_kernel_looks_after_silent_clients() {
        env::real::Runtime::new().unwrap().block_on(|env: Env| async move {
            let listener = env.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let server = listener.local_addr().unwrap();
            // Not by this runtime's own way, which is no TCP within a machine.
            let client = std::net::TcpStream::connect(server).unwrap();
            let stream = listener.accept().await.unwrap();
            let of_server = env.clone();
            env.go(async move { serve(&of_server, stream, &[]).await });
            // "local_address rem_address st tx:rx tr:when", the server's end first (proc_net_tcp).
            let ends = format!(
                "0100007F:{:04X} 0100007F:{:04X} ",
                server.port(),
                client.local_addr().unwrap().port()
            );
            // What the server says first has a timer of its own until it is acknowledged.
            env.timeout(Duration::from_secs(60), async {
                loop {
                    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
                    let line = table.lines().find(|line| line.contains(&ends)).unwrap();
                    let timer = line.split_whitespace().nth(5).unwrap();
                    if timer.starts_with("02:") {
                        break;
                    }
                    env.sleep(Duration::from_millis(5)).await;
                }
            })
            .await
            .expect("no timer for a silent client");
        });
    }
}
