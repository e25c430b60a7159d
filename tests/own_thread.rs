//! Where a client's connections run, and what happens when there is nowhere. One test: limits are the process's.

use std::{
    fs,
    time::{Duration, Instant},
};

use nfs_wireless_client::{Client, ClientConfig, Error, TransportChoice};
use nfs_wireless_server::{Action, Calls, Faults, Memory, Rule, Server, Service, ServiceConfig, When};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    runtime::{Builder, Handle},
    time::{sleep, timeout},
};

/// Counts the threads that clients of this process have for themselves.
fn own_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name == "nfs-io\n").count()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Runs `attempt` while a resource has this limit.
async fn limited<T>(resource: Resource, limit: u64, attempt: impl Future<Output = T>) -> T {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(limit), ..before }).unwrap();
    let result = attempt.await;
    setrlimit(resource, before).unwrap();
    result
}

#[tokio::test]
async fn a_thread_of_its_own_is_an_option_and_its_failure_an_error() {
    // The server's tasks are elsewhere: those of this runtime are counted.
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let binding = elsewhere.spawn(Server::bind("127.0.0.1:0".parse().unwrap(), service));
    let server = binding.await.unwrap().unwrap();
    let mut config = ClientConfig::default();
    config.portmap_port = server.local_addr().port();
    config.own_thread = true;
    // No memory for the stack of a thread, then nothing to wait for sockets with.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let in_use = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix(" kB"));
    let memory = (in_use.unwrap().trim().parse::<u64>().unwrap() << 10) + (1 << 20);
    for (resource, limit) in [(Resource::As, memory), (Resource::Nofile, 3)] {
        let refused = limited(resource, limit, Client::connect("127.0.0.1", b"/", config.clone())).await;
        assert!(matches!(refused, Err(Error::Local(_))), "{refused:?}");
    }

    config.own_thread = false;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();

    let client = Client::connect("127.0.0.1", b"/", config.clone()).await.unwrap();
    client.null().await.unwrap();
    assert_eq!(own_threads(), 0);
    assert!(tasks() > before, "its connections are tasks of this runtime");
    drop(client);
    until("they end with the client", || tasks() <= before).await;

    config.own_thread = true;
    let client = Client::connect("127.0.0.1", b"/", config.clone()).await.unwrap();
    client.null().await.unwrap();
    assert_eq!(own_threads(), 1);
    let other = client.clone();
    drop(client);
    other.null().await.unwrap();
    drop(other);
    until("the thread ends with the last of its clients", || own_threads() == 0).await;

    // Whoever gives up connecting leaves nothing either.
    let rule = Rule { calls: Calls::Any, when: When::Always, action: Action::DropCall };
    server.with_service(|service| service.set_faults(Faults::from(vec![rule])));
    for transport in [TransportChoice::Udp, TransportChoice::Tcp, TransportChoice::Auto] {
        for own_thread in [false, true] {
            (config.transport, config.own_thread) = (transport, own_thread);
            let connecting = Client::connect("127.0.0.1", b"/", config.clone());
            assert!(timeout(Duration::from_millis(100), connecting).await.is_err(), "nobody answers");
        }
    }
    until("tasks and threads end", || tasks() <= before && own_threads() == 0).await;
    elsewhere.shutdown_background();
}
