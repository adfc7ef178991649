//! The order of answers to one client, in the simulated cluster.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use sim::{Control, World};
use simtest::{Cluster, Plan};

/// Runs tasks side by side; says in which order they ended.
async fn at_once<T: Future<Output = u64> + 'static>(
    world: &Control,
    tasks: impl Iterator<Item = T>,
) -> Vec<usize> {
    let ended = Rc::new(RefCell::new(Vec::new()));
    let spawn = |(n, task): (usize, T)| {
        let ended = ended.clone();
        world.spawn(async move {
            task.await;
            ended.borrow_mut().push(n);
        })
    };
    for task in tasks.enumerate().map(spawn).collect::<Vec<_>>() {
        task.await;
    }
    ended.take()
}

/// Found by Ceph's `ceph_test_rados`, which has several writes of an object under way and gives up when
/// they are answered in another order.
///
/// 1. One flush makes two writes durable on the primary, and their tasks are woken. That of the first
///    notes it, and waits for the replicas.
/// 2. The replicas' word of both comes. The first write is whole, and its task is woken again, behind the
///    second's.
/// 3. The second's task notes that the primary has it, which was all that it still waited for, and answered
///    at once.
#[test]
fn writes_of_an_object_are_answered_in_their_order() {
    const WRITES: usize = 6;
    for code in [None, Some((2, 1))] {
        let world = World::new(31);
        let cluster = Cluster::make(&world.control(), Plan { code, ..Plan::default() });
        world.run_until(async move {
            let world = cluster.world().clone();
            let admin = cluster.start().await;
            cluster.create_pool(&admin, 1).await;
            cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
            let io = admin.io_ctx("p").await.unwrap();
            for _ in 0..100 {
                let write = |n: usize| {
                    let (io, data) = (io.clone(), vec![1; 4096 << (2 * (n % 3))]);
                    async move { io.write("o", (n * 65_536) as u64, data.into()).await.unwrap() }
                };
                let answered = at_once(&world, (0..WRITES).map(write)).await;
                assert_eq!(answered, (0..WRITES).collect::<Vec<_>>(), "{code:?}");
            }
        });
    }
}
