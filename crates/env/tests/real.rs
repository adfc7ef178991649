//! The real driver's contract, on both reactors.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use env::real::{Reactors, Runtime};
use env::within::Within;
use env::{AlignedBuf, Env, OpenBlock, Stream, Until, yield_now};

/// Runs a scenario on both reactors, alone in its thread and as a daemon among others, refusing to hang.
/// Where io_uring is refused (a container's seccomp filter) only epoll is tried.
fn on_both<F: Future<Output = ()> + 'static>(scenario: impl Fn(Env) -> F) {
    let worlds = [
        (Reactors::Uring, false),
        (Reactors::Uring, true),
        (Reactors::Epoll, false),
        (Reactors::Epoll, true),
    ];
    for (reactor, shared) in worlds {
        let runtime = match Runtime::on(reactor) {
            Ok(runtime) => runtime,
            Err(error) if reactor == Reactors::Uring => {
                eprintln!("io_uring not tried: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let tenants = runtime.tenants(&Within::default());
        runtime.block_on(|env| {
            let env = if shared { tenants.env(NonZeroU32::MIN) } else { env };
            let task = scenario(env.clone());
            async move {
                if env.timeout(Duration::from_secs(60), task).await.is_err() {
                    panic!("the scenario hangs on {reactor:?}, shared: {shared}");
                }
            }
        });
    }
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn pair(env: &Env) -> (Rc<dyn Stream>, Rc<dyn Stream>) {
    let listener = env.listen(any_port()).unwrap();
    let connecting = env.spawn_with_handle({
        let (env, addr) = (env.clone(), listener.local_addr().unwrap());
        async move { env.connect(addr).await.unwrap() }
    });
    let accepted = listener.accept().await.unwrap();
    (connecting.await, accepted)
}

async fn recv_exactly(stream: &Rc<dyn Stream>, len: usize) -> io::Result<BytesMut> {
    let mut all = BytesMut::with_capacity(len);
    while all.len() < len {
        let (received, buf) = stream.recv(all).await;
        all = buf;
        if received? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(all)
}

/// A file path of this test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("env-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_big_transfer_comes_back_whole() {
    on_both(|env| async move {
        const LEN: usize = 16 << 20;
        let (near, far) = pair(&env).await;
        assert_eq!(near.peer_addr(), far.local_addr());
        assert_eq!(near.local_addr(), far.peer_addr());
        env.go(async move {
            let data = recv_exactly(&far, LEN).await.unwrap().freeze();
            // More pieces than one system call takes, some of them empty.
            let mut pieces = vec![Bytes::new()];
            pieces.extend((0..LEN).step_by(5000).map(|at| data.slice(at..LEN.min(at + 5000))));
            pieces.push(Bytes::new());
            far.send(pieces).await.unwrap();
        });
        let data: Bytes = (0..LEN).map(|i| ((i * 31) >> 3) as u8).collect::<Vec<_>>().into();
        let sending = env.spawn_with_handle({
            let (near, data) = (near.clone(), data.clone());
            async move { near.send(vec![data]).await }
        });
        let back = recv_exactly(&near, LEN).await.unwrap();
        sending.await.unwrap();
        assert!(back == data);
        near.send(vec![]).await.unwrap();
    });
}

#[test]
fn a_part_of_a_buffer_is_filled_and_the_end_is_told() {
    on_both(|env| async move {
        const LEN: usize = 3 << 20;
        let (near, far) = pair(&env).await;
        let data: Bytes = (0..LEN).map(|i| ((i * 31) >> 3) as u8).collect();
        env.go({
            let data = data.clone();
            async move { far.send(vec![data]).await.unwrap() }
        });
        let (mut buf, mut filled) = (AlignedBuf::zeroed(LEN + 200), 100);
        while filled < LEN + 100 {
            let end = (filled + 200_000).min(LEN + 100);
            let (got, back) = near.recv_into(buf, filled..end).await;
            buf = back;
            let got = got.unwrap();
            assert!(got > 0 && filled + got <= end);
            filled += got;
        }
        assert!(buf[100..LEN + 100] == data[..]);
        assert!(buf[..100].iter().chain(&buf[LEN + 100..]).all(|b| *b == 0));
        let (end, buf) = near.recv_into(buf, 0..10).await;
        assert_eq!(end.unwrap(), 0);
        for wrong in [5..5, 0..LEN + 201] {
            let (refused, _) = near.recv_into(AlignedBuf::scratch(buf.len()), wrong).await;
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn five_hundred_connections_talk_at_once() {
    on_both(|env| async move {
        let listener = env.listen(any_port()).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = env.clone();
        env.go(async move {
            loop {
                let stream = listener.accept().await.unwrap();
                server.go(async move {
                    loop {
                        let (got, buf) = stream.recv(BytesMut::with_capacity(256)).await;
                        if got.unwrap_or(0) == 0 || stream.send(vec![buf.freeze()]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let clients: Vec<_> = (0..500u32)
            .map(|id| {
                let client = env.clone();
                env.spawn_with_handle(async move {
                    let stream = client.connect(addr).await.unwrap();
                    for round in 0..10u32 {
                        let message = Bytes::from(format!("{id} {round}"));
                        stream.send(vec![message.clone()]).await.unwrap();
                        assert_eq!(recv_exactly(&stream, message.len()).await.unwrap(), message);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await;
        }
    });
}

#[test]
fn close_ends_pending_calls_on_both_sides() {
    on_both(|env| async move {
        let (near, far) = pair(&env).await;
        let mine = env.spawn_with_handle({
            let near = near.clone();
            async move { near.recv(BytesMut::with_capacity(10)).await.0 }
        });
        let theirs = env.spawn_with_handle({
            let far = far.clone();
            async move { far.recv(BytesMut::with_capacity(10)).await.0 }
        });
        yield_now().await;
        near.close();
        assert_eq!(mine.await.unwrap_or(0), 0);
        assert_eq!(theirs.await.unwrap_or(0), 0);
        assert!(near.send(vec![Bytes::from_static(b"late")]).await.is_err());

        // A send that nobody reads ends too.
        let (near, _far) = pair(&env).await;
        let stuck = env.spawn_with_handle({
            let near = near.clone();
            async move { near.send(vec![vec![0; 64 << 20].into()]).await }
        });
        env.sleep(Duration::from_millis(20)).await;
        assert!(!stuck.is_finished());
        near.close();
        assert!(stuck.await.is_err());
    });
}

/// Who is on this host comes by the unix socket, others by the port, in whatever order; both tell
/// addresses of the port.
#[test]
fn an_address_is_listened_on_twice() {
    on_both(|env| async move {
        let listener = env.listen(any_port()).unwrap();
        let addr = listener.local_addr().unwrap();
        for round in 0..6 {
            let first = listener.accept();
            let ours = match round % 2 {
                0 => Some(env.connect(addr).await.unwrap()),
                _ => None,
            };
            let theirs = std::net::TcpStream::connect(addr).unwrap();
            let ours = match ours {
                Some(ours) => ours,
                None => env.connect(addr).await.unwrap(),
            };
            let (a, b) = (first.await.unwrap(), listener.accept().await.unwrap());
            let is_twin = |s: &Rc<dyn Stream>| s.peer_addr().unwrap().port() == 0;
            let (twin, tcp) = if is_twin(&a) { (a, b) } else { (b, a) };
            assert!(is_twin(&twin) && !is_twin(&tcp));
            assert_eq!(tcp.peer_addr(), theirs.local_addr().ok());
            assert_eq!((twin.local_addr(), tcp.local_addr()), (Some(addr), Some(addr)));
            assert_eq!(ours.peer_addr(), Some(addr));
            assert_eq!(ours.local_addr().unwrap().ip(), addr.ip());
            ours.send(vec![Bytes::from_static(b"hello")]).await.unwrap();
            assert_eq!(recv_exactly(&twin, 5).await.unwrap()[..], b"hello"[..]);
        }
        // Nobody can take the name while it is in use, and it goes with who has it.
        let other = UnixAddr::from_abstract_name(format!("loligo/{addr}")).unwrap();
        assert!(UnixListener::bind_addr(&other).is_err());
        drop(listener);
        let retry = async {
            while UnixListener::bind_addr(&other).is_err() {
                env.sleep(Duration::from_millis(1)).await;
            }
        };
        env.timeout(Duration::from_secs(10), retry).await.unwrap();
    });
}

/// Anybody may take the name of a port that has no twin: who is not of our user is not believed.
#[test]
fn a_twin_of_another_user_is_not_taken() {
    const NOBODY: libc::c_long = 65534;
    // The calls change this thread alone, as glibc's do not; the kernel notes who listens.
    let become_user = |euid: libc::c_long| {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_setresuid, -1_i64, euid, -1_i64) == 0 }
    };
    on_both(move |env| async move {
        let listener = std::net::TcpListener::bind(any_port()).unwrap();
        let addr = listener.local_addr().unwrap();
        let name = UnixAddr::from_abstract_name(format!("loligo/{addr}")).unwrap();
        if !become_user(NOBODY) {
            eprintln!("another user's not tried: only root can be one");
            return;
        }
        let foreign = UnixListener::bind_addr(&name);
        assert!(become_user(0));
        let foreign = foreign.unwrap();
        let ours = env.connect(addr).await.unwrap();
        assert_ne!(ours.local_addr().unwrap().port(), 0, "a port, not the name");
        assert_eq!(listener.accept().unwrap().1.port(), ours.local_addr().unwrap().port());
        drop(foreign);
        // The same name, taken by us, is.
        let _own = UnixListener::bind_addr(&name).unwrap();
        assert_eq!(env.connect(addr).await.unwrap().local_addr().unwrap().port(), 0);
    });
}

/// Of daemons that share a thread one may end: its peers are told, nobody finds it any more, and the others go on.
#[test]
fn a_tenant_ends_and_the_others_do_not() {
    let runtime = Runtime::new().unwrap();
    let tenants = runtime.tenants(&Within::default());
    let [one, two] = [1, 2].map(|n| NonZeroU32::new(n).unwrap());
    runtime.block_on(move |_| async move {
        let (first, second) = (tenants.env(one), tenants.env(two));
        let alive = Rc::new(Cell::new(0));
        let count = alive.clone();
        let listener = first.listen(any_port()).unwrap();
        let addr = listener.local_addr().unwrap();
        let env = first.clone();
        first.go(async move {
            assert_eq!(env::running_owner(), Some(1));
            let stream = listener.accept().await.unwrap();
            stream.send(vec![Bytes::from_static(b"hello")]).await.unwrap();
            loop {
                count.set(count.get() + 1);
                env.sleep(Duration::from_millis(1)).await;
            }
        });
        let (env, seen) = (second.clone(), alive.clone());
        let handle = second.spawn_with_handle(async move {
            assert_eq!(env::running_owner(), Some(2));
            let stream = env.connect(addr).await.unwrap();
            assert!(stream.passage().is_some());
            assert_eq!(recv_exactly(&stream, 5).await.unwrap()[..], b"hello"[..]);
            while seen.get() < 3 {
                env.sleep(Duration::from_millis(1)).await;
            }
            tenants.end(one);
            let after = seen.get();
            assert_eq!(stream.recv(BytesMut::with_capacity(10)).await.0.unwrap(), 0);
            assert!(stream.passage().unwrap().receive().await.is_none());
            let gone = async { while env.connect(addr).await.is_ok() {} };
            env.timeout(Duration::from_secs(10), gone).await.unwrap();
            env.sleep(Duration::from_millis(10)).await;
            assert_eq!((after, Rc::strong_count(&seen)), (seen.get(), 2));
        });
        handle.await;
        drop(alive);
    });
}

/// What is handed over comes whole, in order, one after the other, beside the bytes.
#[test]
fn values_are_handed_over_within_a_thread() {
    let runtime = Runtime::new().unwrap();
    let env = runtime.tenants(&Within::default()).env(NonZeroU32::MIN);
    runtime.block_on(move |_| async move {
        let (near, far) = pair(&env).await;
        let (to, from) = (near.passage().unwrap(), far.passage().unwrap());
        let handed = Rc::new(Cell::new(0));
        let count = handed.clone();
        env.go(async move {
            for n in 0..100_u32 {
                to.hand(Box::new(n)).await.unwrap();
                count.set(n + 1);
            }
            near.send(vec![Bytes::from_static(b"that was all")]).await.unwrap();
        });
        env.sleep(Duration::from_millis(5)).await;
        assert_eq!(handed.get(), 1, "the next waits until the first is taken");
        for n in 0..100_u32 {
            assert_eq!(*from.receive().await.unwrap().downcast::<u32>().unwrap(), n);
        }
        assert_eq!(recv_exactly(&far, 12).await.unwrap()[..], b"that was all"[..]);
        // Whose other end is closed hands over in vain.
        assert!(from.receive().await.is_none());
        assert!(from.hand(Box::new(0)).await.is_err());
    });
}

/// Daemons of two threads hand each other what they say, too, and each is woken by the other.
#[test]
fn values_are_handed_over_between_threads() {
    const COUNT: u32 = 5000;
    let within = Within::default();
    let (tell, told) = std::sync::mpsc::channel();
    let of_server = within.clone();
    let server = std::thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        let env = runtime.tenants(&of_server).env(NonZeroU32::MIN);
        runtime.block_on(move |_| async move {
            let listener = env.listen(any_port()).unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let stream = listener.accept().await.unwrap();
            let passage = stream.passage().unwrap();
            while let Some(value) = passage.receive().await {
                passage.hand(value).await.unwrap();
            }
        });
    });
    let addr = told.recv().unwrap();
    let runtime = Runtime::new().unwrap();
    let env = runtime.tenants(&within).env(NonZeroU32::MIN);
    runtime.block_on(move |_| async move {
        let stream = env.connect(addr).await.unwrap();
        let passage = stream.passage().unwrap();
        for n in 0..COUNT {
            passage.hand(Box::new(n)).await.unwrap();
            if n % 1000 == 0 {
                env.sleep(Duration::from_millis(2)).await;
            }
            assert_eq!(*passage.receive().await.unwrap().downcast::<u32>().unwrap(), n);
        }
    });
    server.join().unwrap();
}

#[test]
fn dropping_the_last_reference_tells_the_peer() {
    on_both(|env| async move {
        let (near, far) = pair(&env).await;
        // Its receive is given up in flight, which must not keep the connection open.
        let receiving = near.recv(BytesMut::with_capacity(100));
        assert!(env.timeout(Duration::from_millis(5), receiving).await.is_err());
        drop(near);
        assert_eq!(far.recv(BytesMut::with_capacity(10)).await.0.unwrap_or(0), 0);
    });
}

#[test]
fn nobody_listening_is_an_error_and_so_is_no_room() {
    on_both(|env| async move {
        let gone = env.listen(any_port()).unwrap().local_addr().unwrap();
        let error = env.connect(gone).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let (near, _far) = pair(&env).await;
        let error = near.recv(BytesMut::new()).await.0.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn operations_given_up_leave_everything_working() {
    on_both(|env| async move {
        let listener = env.listen(any_port()).unwrap();
        let short = Duration::from_millis(1);
        assert!(env.timeout(short, listener.accept()).await.is_err());
        for _ in 0..50 {
            let (near, far) = pair(&env).await;
            let wait = env.timeout(short / 10, near.recv(BytesMut::with_capacity(1 << 20)));
            assert!(wait.await.is_err());
            let sending = env.timeout(short / 10, far.send(vec![vec![1; 8 << 20].into()]));
            assert!(sending.await.is_err());
        }
        let (near, far) = pair(&env).await;
        near.send(vec![Bytes::from_static(b"still here")]).await.unwrap();
        assert_eq!(recv_exactly(&far, 10).await.unwrap(), "still here");
        // Left in flight for the runtime's end.
        let pending = Rc::new(RefCell::new(Vec::new()));
        pending.borrow_mut().push(near.recv(BytesMut::with_capacity(1 << 20)));
        let keeper = pending.clone();
        env.go(async move {
            std::future::pending::<()>().await;
            drop(keeper);
        });
    });
}

#[test]
fn timers_fire_in_order_and_not_early() {
    on_both(|env| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = env.now();
        let tasks: Vec<_> = [30u64, 10, 20, 10, 0]
            .into_iter()
            .enumerate()
            .map(|(task, millis)| {
                let (timer, order) = (env.clone(), order.clone());
                env.spawn_with_handle(async move {
                    let wait = Duration::from_millis(millis);
                    timer.sleep_until(start + wait).await;
                    assert!(timer.now() >= start + wait);
                    order.borrow_mut().push(task);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [4, 1, 3, 2, 0]);
        let late = env.timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        assert_eq!(late, Err(env::Elapsed));
        assert_eq!(env.timeout(Duration::from_secs(9), async { 7 }).await, Ok(7));
    });
}

#[test]
fn a_foreign_thread_ends_the_wait() {
    on_both(|env| async move {
        let (sender, mut receiver) = (Rc::new(Cell::new(None)), None);
        let woken = std::future::poll_fn(|cx| {
            if receiver.is_some() {
                return std::task::Poll::Ready(());
            }
            let waker = cx.waker().clone();
            receiver = Some(());
            sender.set(Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            })));
            std::task::Poll::Pending
        });
        let start = env.now();
        woken.await;
        assert!(env.now() - start >= Duration::from_millis(20));
        sender.take().unwrap().join().unwrap();
    });
}

#[test]
fn unix_sockets_replace_stale_ones_only() {
    on_both(|env| async move {
        let scratch = Scratch::new("socket");
        let path = &scratch.0;
        let first = env.listen_unix(path).unwrap();
        assert_eq!(first.local_addr(), None);
        assert_eq!(env.listen_unix(path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let listener = env.listen_unix(path).unwrap();
        let (near, far) = futures(env.connect_unix(path), listener.accept(), &env).await;
        let (near, far) = (near.unwrap(), far.unwrap());
        assert_eq!((near.peer_addr(), far.local_addr()), (None, None));
        near.send(vec!["ab".into(), "c".into()]).await.unwrap();
        assert_eq!(recv_exactly(&far, 3).await.unwrap(), "abc");
        let long = PathBuf::from("/".repeat(200));
        assert!(env.connect_unix(&long).await.is_err());
    });
}

async fn futures<A: 'static, B>(
    one: impl Future<Output = A> + 'static,
    other: impl Future<Output = B>,
    env: &Env,
) -> (A, B) {
    let one = env.spawn_with_handle(one);
    let other = other.await;
    (one.await, other)
}

#[test]
fn block_files_keep_what_is_written() {
    on_both(|env| async move {
        let scratch = Scratch::new("block");
        let options = OpenBlock { create_len: Some(16 << 20), ..OpenBlock::default() };
        let file = env.open_block(&scratch.0, options).unwrap();
        assert_eq!(file.len(), 16 << 20);
        let block = u64::from(file.block_len());
        assert!([512, 4096].contains(&block));

        let aligned = AlignedBuf::copy_from_slice(&[1; 8192]).freeze();
        // Odd pieces among whole ones: 4096 + (100 + 3996) + 8192.
        let odd = Bytes::from(vec![2; 4097]).slice(1..101);
        let rest = Bytes::from(vec![3; 3996]);
        let pieces = vec![aligned.slice(..4096), odd, rest, aligned.clone(), Bytes::new()];
        file.write_at(4096, pieces).await.unwrap();
        file.sync().await.unwrap();
        let back = file.read_at(0, 5 * 4096).await.unwrap();
        assert!(back[..4096].iter().all(|b| *b == 0));
        assert!(back[4096..8192].iter().all(|b| *b == 1));
        assert!(back[8192..8292].iter().all(|b| *b == 2));
        assert!(back[8292..12288].iter().all(|b| *b == 3));
        assert!(back[12288..].iter().all(|b| *b == 1));

        // Many at once, one of them with more pieces than a system call takes.
        let many: Vec<_> = (0..64u64)
            .map(|i| {
                let data = AlignedBuf::copy_from_slice(&[i as u8; 65536]).freeze();
                let pieces: Vec<_> =
                    (0..16).map(|p| data.slice(p * 4096..(p + 1) * 4096)).collect();
                let task = file.write_at((1 << 20) + (i << 16), pieces);
                env.spawn_with_handle(task)
            })
            .collect();
        let small = AlignedBuf::copy_from_slice(&[9; 4096]).freeze();
        let pieces = vec![small.slice(..block as usize); 1500];
        file.write_at(6 << 20, pieces).await.unwrap();
        for task in many {
            task.await.unwrap();
        }
        let back = file.read_at((1 << 20) + (63 << 16), 65536).await.unwrap();
        assert!(back.iter().all(|b| *b == 63));
        let back = file.read_at(6 << 20, 1500 * block as usize).await.unwrap();
        assert!(back.iter().all(|b| *b == 9));
        // That they are durable only a power loss would show; that they are there, a read.
        let pieces = vec![small.slice(..block as usize); 1500];
        file.write_until(Until::Durable, 5 << 20, pieces).await.unwrap();
        let back = file.read_at(5 << 20, 1500 * block as usize).await.unwrap();
        assert!(back.iter().all(|b| *b == 9));

        file.discard(6 << 20, 1 << 20).await.unwrap();
        for bad in [file.read_at(1, 4096).await.err(), file.read_at(0, 100).await.err()] {
            assert_eq!(bad.unwrap().kind(), io::ErrorKind::InvalidInput);
        }
        assert!(file.read_at(16 << 20, 4096).await.is_err());
        assert!(file.write_at((16 << 20) - 4096, vec![aligned.clone()]).await.is_err());
        assert!(file.write_at(u64::MAX - 4095, vec![aligned]).await.is_err());
        drop(file);

        let options = OpenBlock { read_only: true, ..OpenBlock::default() };
        let file = env.open_block(&scratch.0, options).unwrap();
        assert!(file.write_at(0, vec![small]).await.is_err());
        assert!(file.read_at(4096, 4096).await.unwrap().iter().all(|b| *b == 1));
        drop(file);
        let options = OpenBlock { create_len: Some(4096), ..OpenBlock::default() };
        assert_eq!(env.open_block(&scratch.0, options).unwrap().len(), 16 << 20);
        assert!(env.open_block(&scratch.0.join("none"), options).is_err());
    });
}

#[test]
fn a_file_open_for_writing_is_locked_until_its_last_operation_ends() {
    on_both(|env| async move {
        let scratch = Scratch::new("locked");
        let options = OpenBlock { create_len: Some(4 << 20), ..OpenBlock::default() };
        let file = env.open_block(&scratch.0, options).unwrap();
        let second = env.open_block(&scratch.0, options).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        let data = AlignedBuf::copy_from_slice(&[5; 1 << 20]).freeze();
        let write = file.write_at(0, vec![data]);
        assert!(env.timeout(Duration::ZERO, write).await.is_err());
        drop(file);
        env.sleep(Duration::from_millis(50)).await;
        env.open_block(&scratch.0, options).unwrap();
    });
}

/// Once in many starts on a busy machine `loligo up` could not open the store it had just made ("operation
/// would block"): the kernel still held the file for an fsync that had been answered, and would have
/// until the thread entered it for its io_uring again; it slept instead, waiting for the lock.
#[test]
fn a_file_that_the_kernel_still_holds_is_not_locked_when_nobody_uses_it() {
    on_both(|env| async move {
        let scratch = Scratch::new("held");
        let options = OpenBlock { create_len: Some(1 << 20), ..OpenBlock::default() };
        let file = env.open_block(&scratch.0, options).unwrap();
        let path = std::fs::canonicalize(&scratch.0).unwrap();
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let fd = fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|at| at == path));
        let fd: Vec<i32> = fd.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
        assert_eq!(fd.len(), 1, "{fd:?}");
        // SAFETY: the descriptor is open, and what it is copied to is this test's own.
        let held = unsafe { OwnedFd::from_raw_fd(libc::dup(fd[0])) };
        drop(file);
        env.open_block(&scratch.0, options).unwrap();
        drop(held);
    });
}

#[test]
fn sync_files_grow_and_shrink() {
    on_both(|env| async move {
        let scratch = Scratch::new("sync");
        let file = env.open_sync(&scratch.0).unwrap();
        file.write_at(3, b"abc").unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 6);
        let mut buf = [9; 6];
        file.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"\0\0\0abc");
        assert!(file.read_at(4, &mut buf).is_err());
        file.set_len(2).unwrap();
        assert_eq!(file.len().unwrap(), 2);
    });
}

#[test]
fn random_bytes_differ_and_clocks_go_on() {
    on_both(|env| async move {
        assert_ne!(env.random_u64(), env.random_u64());
        let mut long = [0; 4096];
        env.fill_random(&mut long);
        assert!(long.iter().any(|b| *b != 0));
        assert!(env.wall_clock() > Duration::from_secs(1_700_000_000));
        let before = env.now();
        env.sleep(Duration::from_millis(2)).await;
        assert!(env.now() >= before + Duration::from_millis(2));
    });
}

#[test]
fn a_signal_ends_the_wait_for_termination() {
    // The handler is in place from the first call on. Once asked, the process stays asked: both
    // reactors see the same signal.
    drop(Runtime::on(Reactors::Epoll).unwrap().env().termination());
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: sends a signal to this process, whose handler was installed above.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
    });
    on_both(|env| async move { env.termination().await });
}

#[test]
fn thousands_of_operations_in_one_turn_and_half_of_them_given_up() {
    on_both(|env| async move {
        let scratch = Scratch::new("many");
        let options = OpenBlock { create_len: Some(16 << 20), ..OpenBlock::default() };
        let file = env.open_block(&scratch.0, options).unwrap();
        for at in 0..16u64 {
            let data = AlignedBuf::copy_from_slice(&[at as u8; 1 << 20]).freeze();
            file.write_at(at << 20, vec![data]).await.unwrap();
        }
        let mut kept = Vec::new();
        for i in 0..4000u64 {
            let at = i * 7919 % 4096 * 4096;
            let reading = file.read_at(at, 4096);
            if i % 2 == 0 {
                kept.push((at, env.spawn_with_handle(reading)));
            } else {
                // Begun (one poll at least), then given up: its buffer must not come back into
                // use while the kernel still fills it.
                let gone = env.timeout(Duration::ZERO, reading).await;
                drop(gone);
            }
        }
        for (at, reading) in kept {
            let data = reading.await.unwrap();
            assert!(data.iter().all(|b| u64::from(*b) == at >> 20));
        }
    });
}

/// `loligo ublk` waits for the completions of a ring of its own beside everything else.
#[test]
fn a_descriptor_is_awaited_until_it_can_be_read() {
    on_both(|env| async move {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = Rc::new(reader);
        let seen = Rc::new(Cell::new(0));
        let waiting = env.spawn_with_handle({
            let (env, reader, seen) = (env.clone(), reader.clone(), seen.clone());
            async move {
                for _ in 0..2 {
                    // Nothing is taken, so the second wait ends at once.
                    env.readable(reader.clone()).await.unwrap();
                    seen.set(seen.get() + 1);
                }
            }
        });
        env.sleep(Duration::from_millis(20)).await;
        assert_eq!(seen.get(), 0);
        io::Write::write_all(&mut writer, b"x").unwrap();
        waiting.await;
        assert_eq!(seen.get(), 2);
        let mut byte = [0];
        io::Read::read_exact(&mut &*reader, &mut byte).unwrap();
        // Given up while it waits: the descriptor is let go.
        let given_up = env.timeout(Duration::from_millis(5), env.readable(reader)).await;
        assert!(given_up.is_err());
    });
}
