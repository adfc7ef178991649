//! The `prometheus` module: a page of figures under Ceph's metric names on a small HTTP server of
//! its own (`src/pybind/mgr/prometheus/module.py` at v16.2). It serves while the module is enabled
//! (`ceph mgr module enable prometheus`), on the port of the option `mgr/prometheus/server_port`
//! (9283) and the address `mgr/prometheus/server_addr` (that of the manager). A standby serves an
//! empty page, so that who scrapes all managers finds none of them dead.
//!
//! Anybody who reaches the port may read it, as with Ceph's: it holds figures, not data.

mod counters;
mod metadata;
mod metrics;

pub(crate) use metadata::Metadata;
use metadata::ip_of;

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use env::{Listener, Stream};

use crate::daemon::Mgr;

/// Ceph's port for it.
const PORT: u16 = 9283;
/// Longest head of a request.
const REQUEST_LEN_MAX: usize = 8 << 10;
/// Connections served at the same time; more are closed at once.
const CONNECTIONS_MAX: usize = 32;
/// A client that has not asked by then is let go.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How soon a change of the module's state is noticed.
const PAUSE: Duration = Duration::from_millis(500);

/// Which page is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Active,
    Standby,
}

/// `None`: nothing is served.
fn role(mgr: &Mgr) -> Option<Role> {
    let map = mgr.mgrmap.borrow();
    if mgr.stopped.get() || !map.modules.contains("prometheus") {
        return None;
    }
    let own = mgr.messenger.addrs().front().ip();
    role_of(mgr.active.get(), own, map.active_addrs.front().ip())
}

/// A standby on the active manager's address leaves the port to it: a manager that becomes the
/// active one there must find it free.
fn role_of(is_active: bool, own: Option<IpAddr>, active: Option<IpAddr>) -> Option<Role> {
    match is_active {
        true => Some(Role::Active),
        false => (active.is_some() && own != active).then_some(Role::Standby),
    }
}

fn address(mgr: &Mgr) -> SocketAddr {
    let port = u16::try_from(mgr.config.int("mgr/prometheus/server_port")).unwrap_or(PORT);
    let own = mgr.messenger.addrs().front().ip();
    let ip = mgr.config.str("mgr/prometheus/server_addr").parse::<IpAddr>().ok().or(own);
    SocketAddr::new(ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port)
}

/// What others are told: nobody can connect to "all addresses", so the manager's own instead.
fn url(listens: SocketAddr, own: Option<IpAddr>) -> String {
    let own = own.filter(|_| listens.ip().is_unspecified());
    format!("http://{}/", SocketAddr::new(own.unwrap_or(listens.ip()), listens.port()))
}

/// Serves until the manager stops.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    let mut complained = None;
    while !mgr.stopped.get() {
        mgr.env.sleep(PAUSE).await;
        let Some(role) = role(&mgr) else { continue };
        let address = address(&mgr);
        let still = || self::role(&mgr) == Some(role) && self::address(&mgr) == address;
        match mgr.env.listen(address) {
            Ok(listener) => {
                complained = None;
                let url = url(address, mgr.messenger.addrs().front().ip());
                tracing::info!("metrics at {url}metrics ({role:?})");
                if role == Role::Active {
                    *mgr.prometheus_url.borrow_mut() = Some(url);
                    mgr.beacon_now.notify_all();
                }
                serve(&mgr, &*listener, role, still).await;
                if mgr.prometheus_url.take().is_some() {
                    mgr.beacon_now.notify_all();
                }
            }
            Err(error) if complained != Some(address) => {
                complained = Some(address);
                tracing::warn!("no metrics: cannot listen on {address}: {error}");
            }
            Err(_) => {}
        }
    }
}

/// Until the module is disabled, the manager's role is another, or so is the address to serve at.
async fn serve(mgr: &Rc<Mgr>, listener: &dyn Listener, now: Role, still: impl Fn() -> bool) {
    let open = Rc::new(Cell::new(0));
    while still() {
        let Ok(accepted) = mgr.env.timeout(PAUSE, listener.accept()).await else { continue };
        let Ok(stream) = accepted else { return };
        if open.get() >= CONNECTIONS_MAX {
            stream.close();
            continue;
        }
        open.set(open.get() + 1);
        let (of_task, open) = (mgr.clone(), open.clone());
        mgr.env.go(async move {
            let answer = async {
                if let Some(request) = read_head(&*stream).await {
                    let answer = match now {
                        Role::Active => {
                            metadata::refresh(&of_task).await;
                            respond(&request, "/", || metrics::page(&of_task))
                        }
                        Role::Standby => {
                            let map = of_task.mgrmap.borrow();
                            let active = map.services.get("prometheus").map_or("/", String::as_str);
                            respond(&request, active, String::new)
                        }
                    };
                    let _ = stream.send(vec![answer]).await;
                }
            };
            let _ = of_task.env.timeout(REQUEST_TIME, answer).await;
            stream.close();
            open.set(open.get() - 1);
        });
    }
}

/// The head of a request, up to the empty line.
async fn read_head(stream: &dyn Stream) -> Option<String> {
    let mut buf = BytesMut::new();
    loop {
        if buf.windows(4).any(|end| end == b"\r\n\r\n") {
            return Some(String::from_utf8_lossy(&buf).into_owned());
        }
        if buf.len() >= REQUEST_LEN_MAX {
            return None;
        }
        buf.reserve(1024);
        let (result, filled) = stream.recv(buf).await;
        buf = filled;
        if !matches!(result, Ok(n) if n > 0) {
            return None;
        }
    }
}

/// `active`: the URL below which the metrics are.
fn respond(head: &str, active: &str, page: impl FnOnce() -> String) -> Bytes {
    let mut words = head.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = path.split('?').next().unwrap_or("");
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", "text/plain; charset=utf-8", page()),
        ("GET" | "HEAD", "/") => (
            "200 OK",
            "text/html; charset=utf-8",
            format!("<html><body><a href=\"{active}metrics\">Metrics</a></body></html>\n"),
        ),
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "there is /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let mut out = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method != "HEAD" {
        out += &body;
    }
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standby did not listen: who scraped all managers was told that it is dead.
    #[test]
    fn a_standby_serves_an_empty_page() {
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().ok());
        assert_eq!(role_of(true, here, here), Some(Role::Active));
        assert_eq!(role_of(false, here, there), Some(Role::Standby));
        assert_eq!(role_of(false, here, here), None, "the port is the active one's");
        assert_eq!(role_of(false, here, None), None, "one of them is to become active");
        let answer = |path: &str| {
            let head = format!("GET {path} HTTP/1.1\r\n\r\n");
            let answer = respond(&head, "http://10.0.0.2:9283/", String::new);
            String::from_utf8(answer.to_vec()).unwrap()
        };
        let page = answer("/metrics");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n"), "{page}");
        assert!(answer("/").contains("href=\"http://10.0.0.2:9283/metrics\""));
    }

    /// With `server_addr` 0.0.0.0 or `::`, as Ceph's default is, `ceph mgr services` told
    /// `http://0.0.0.0:9283/`: a scraper on another host asked itself.
    #[test]
    fn the_address_that_is_told_is_one_to_connect_to() {
        let told = |listens: &str, own: &str| url(listens.parse().unwrap(), own.parse().ok());
        assert_eq!(told("0.0.0.0:9283", "10.0.0.7"), "http://10.0.0.7:9283/");
        assert_eq!(told("[::]:9283", "fd00::7"), "http://[fd00::7]:9283/");
        assert_eq!(told("127.0.0.1:9283", "10.0.0.7"), "http://127.0.0.1:9283/");
    }
}
