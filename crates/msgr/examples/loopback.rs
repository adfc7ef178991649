//! Requests and answers between two messengers on two threads over loopback TCP; prints requests
//! per second and the CPU each side spends on one.
//!
//! `cargo run --release -p loligo-msgr --example loopback [secure|crc|none] [depth] [data bytes] [seconds]`

#[path = "../tests/common/mod.rs"]
mod common;

use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use common::{localhost, node, raw};
use env::real::Runtime;
use msgr::{Connection, Dispatcher, Incoming, Policies, Policy};
use types::addr::AddrVec;
use types::entity::{EntityName, OSD};

fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Answers each request with a small message, or sends the next request for each answer.
struct Player {
    data: Option<Bytes>,
    count: std::cell::Cell<u64>,
}

impl Dispatcher for Player {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        self.count.set(self.count.get() + 1);
        let message = incoming.into_message();
        con.send(next(message.header.tid + 1, &self.data));
    }
}

fn next(tid: u64, data: &Option<Bytes>) -> types::RawMessage {
    let mut message = raw(42, tid, &[7; 180]);
    if let Some(data) = data {
        message.data.push(data.clone());
    }
    message
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &str| args.get(at).cloned().unwrap_or(default.to_owned());
    let modes = match arg(0, "crc").as_str() {
        "none" => None,
        "secure" => Some(vec![auth::MODE_SECURE]),
        _ => Some(vec![auth::MODE_CRC]),
    };
    let depth: u64 = arg(1, "64").parse().unwrap();
    let data_len: usize = arg(2, "4096").parse().unwrap();
    let seconds: u64 = arg(3, "3").parse().unwrap();

    let (tell, told) = mpsc::channel::<AddrVec>();
    let (tell_cpu, cpu) = mpsc::channel::<(Duration, u64)>();
    let server_modes = modes.clone();
    std::thread::spawn(move || {
        Runtime::new().unwrap().block_on(|env| async move {
            let policy = Policy::stateless_registered_server().throttled(500 << 20, 256);
            let (server, _) = node(&env, EntityName::osd(0), Policies::new(policy), server_modes);
            let player = Rc::new(Player { data: None, count: Default::default() });
            server.set_dispatcher(player.clone());
            server.bind(localhost()).unwrap();
            tell.send(server.addrs()).unwrap();
            env.sleep(Duration::from_secs(1)).await;
            let (cpu, count) = (thread_cpu(), player.count.get());
            env.sleep(Duration::from_secs(seconds)).await;
            tell_cpu.send((thread_cpu() - cpu, player.count.get() - count)).unwrap();
            env.sleep(Duration::from_secs(60)).await;
        });
    });
    let addrs = told.recv().unwrap();
    Runtime::new().unwrap().block_on(|env| async move {
        let policies = Policies::new(Policy::lossy_client());
        let (client, _) = node(&env, EntityName::client(1), policies, modes);
        let data = (data_len > 0).then(|| Bytes::from(vec![5; data_len]));
        let player = Rc::new(Player { data: data.clone(), count: Default::default() });
        client.set_dispatcher(player.clone());
        let con = client.connect_to(OSD, &addrs);
        for i in 0..depth {
            con.send(next(i, &data));
        }
        env.sleep(Duration::from_secs(1)).await;
        let (cpu0, count0) = (thread_cpu(), player.count.get());
        env.sleep(Duration::from_secs(seconds)).await;
        let (spent, count) = (thread_cpu() - cpu0, player.count.get() - count0);
        let (server_spent, server_count) = cpu.recv().unwrap();
        println!(
            "depth {depth}, {data_len} B: {:.0} requests/s; CPU per request: client {:.2} us, server {:.2} us",
            count as f64 / seconds as f64,
            spent.as_secs_f64() * 1e6 / count as f64,
            server_spent.as_secs_f64() * 1e6 / server_count as f64,
        );
    });
}
