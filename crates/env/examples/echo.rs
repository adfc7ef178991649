//! What a request costs on each reactor: 4 KiB over loopback TCP, 16 bytes back, with or without
//! a 4 KiB write to a file in between.
//!
//! `cargo run --release -p loligo-env --example echo [seconds] [file]` prints, per reactor and
//! number of connections, requests a second, microseconds a request takes a client and
//! microseconds of CPU the server's thread (without the kernel's helper threads) spends on one.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use env::real::{Reactors, Runtime};
use env::{AlignedBuf, BlockFile, Env, OpenBlock, Stream};

const REQUEST: usize = 4096;
const REPLY: usize = 16;
const FILE_LEN: u64 = 64 << 20;

fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn recv_exactly(stream: &Rc<dyn Stream>, len: usize) -> Option<BytesMut> {
    let mut all = BytesMut::with_capacity(len);
    while all.len() < len {
        let (received, buf) = stream.recv(all).await;
        all = buf;
        if received.unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(all)
}

async fn serve(env: Env, addr: std::sync::mpsc::Sender<SocketAddr>, file: Option<String>) {
    let listener = env.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    addr.send(listener.local_addr().unwrap()).unwrap();
    let file: Option<Rc<dyn BlockFile>> = file.map(|path| {
        let options = OpenBlock { create_len: Some(FILE_LEN), read_only: false };
        env.open_block(path.as_ref(), options).unwrap()
    });
    let control = listener.accept().await.unwrap();
    let acceptor = env.clone();
    env.go(async move {
        while let Ok(stream) = listener.accept().await {
            let (file, env) = (file.clone(), acceptor.clone());
            acceptor.go(async move {
                let reply = Bytes::from_static(&[1; REPLY]);
                while let Some(request) = recv_exactly(&stream, REQUEST).await {
                    if let Some(file) = &file {
                        let data = AlignedBuf::copy_from_slice(&request).freeze();
                        let at = env.random_u64() % (FILE_LEN / 4096) * 4096;
                        file.write_at(at, vec![data]).await.unwrap();
                    }
                    if stream.send(vec![reply.clone()]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    recv_exactly(&control, 1).await;
}

fn measure(reactor: Reactors, connections: usize, time: Duration, file: Option<String>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        Runtime::on(reactor).unwrap().block_on(|env| serve(env, sender, file));
        thread_cpu()
    });
    let addr = receiver.recv().unwrap();
    let (requests, elapsed) = Runtime::on(reactor).unwrap().block_on(move |env| async move {
        let control = env.connect(addr).await.unwrap();
        let start = env.now();
        let clients: Vec<_> = (0..connections)
            .map(|_| {
                let client = env.clone();
                env.spawn_with_handle(async move {
                    let stream = client.connect(addr).await.unwrap();
                    let request = Bytes::from(vec![7; REQUEST]);
                    let mut requests = 0u64;
                    while client.now() - start < time {
                        stream.send(vec![request.clone()]).await.unwrap();
                        recv_exactly(&stream, REPLY).await.unwrap();
                        requests += 1;
                    }
                    requests
                })
            })
            .collect();
        let mut requests = 0;
        for client in clients {
            requests += client.await;
        }
        let elapsed = env.now() - start;
        control.send(vec![Bytes::from_static(b"x")]).await.unwrap();
        (requests, elapsed)
    });
    let cpu = server.join().unwrap();
    println!(
        "{reactor:?}\t{connections}\t{:.0}\t{:.1}\t{:.2}",
        requests as f64 / elapsed.as_secs_f64(),
        elapsed.as_micros() as f64 * connections as f64 / requests as f64,
        cpu.as_nanos() as f64 / 1000.0 / requests as f64,
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let time = args.next().map_or(2.0, |arg| arg.parse().expect("seconds"));
    let file = args.next();
    println!("reactor\tconnections\trequests/s\tus/request\tserver CPU us/request");
    for connections in [1, 32] {
        for reactor in [Reactors::Uring, Reactors::Epoll] {
            measure(reactor, connections, Duration::from_secs_f64(time), file.clone());
        }
    }
}
