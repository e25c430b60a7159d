//! Every `Duration` of the configuration is accepted: one that no clock can show is never over.

use std::time::{Duration, Instant};

use nfs_wireless_client::{
    Client, ClientConfig, Placement, Procedure, RetryPolicy, SetAttributes, TransportChoice, UploadSpec,
};
use nfs_wireless_server::{Action, Calls, Faults, Memory, Rule, Server, Service, ServiceConfig, When};

#[tokio::test]
async fn the_longest_durations_are_never_over() {
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    for maximum in [Duration::MAX, Duration::from_secs(u64::MAX / 4), Duration::from_secs(u64::MAX / 2)] {
        let initial = Duration::from_millis(100);
        let policies = [
            RetryPolicy::Adaptive,
            RetryPolicy::Kernel { maximum },
            RetryPolicy::Exponential { initial, maximum },
            RetryPolicy::Exponential { initial: maximum, maximum },
            RetryPolicy::Hybrid { initial, linear_steps: u32::MAX, linear_step: maximum, maximum },
        ];
        for (retry, transport) in policies.into_iter().flat_map(|retry| {
            [TransportChoice::Udp, TransportChoice::Tcp].map(|transport| (retry, transport))
        }) {
            let mut config = ClientConfig::default();
            config.transport = transport;
            config.portmap_port = server.local_addr().port();
            config.retry = retry;
            config.call_timeout = Some(maximum);
            config.stall_timeout = Some(maximum);
            config.connect_timeout = Some(maximum);
            let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
            if transport == TransportChoice::Udp && !waits_for_ever(retry, maximum) {
                // Sent again, once.
                let calls = Calls::Procedure(Procedure::Create);
                let rule = Rule { calls, when: When::Nth(1), action: Action::DropCall };
                server.with_service(|service| service.set_faults(Faults::from(vec![rule])));
            }
            let file = client.create(client.root(), b"file", mode).await.unwrap();
            let source = tempfile::tempfile().unwrap();
            source.set_len(100_000).unwrap();
            let spec = UploadSpec {
                mode: 0o600,
                ..UploadSpec::new(client.root(), b"file".to_vec(), Placement::Existing(file.handle), 100_000)
            };
            client.upload(spec, source, None).await.unwrap();
            let sink = tempfile::tempfile().unwrap();
            client.download(file.handle, 100_000, sink.try_clone().unwrap(), None).await.unwrap();
            assert_eq!(sink.metadata().unwrap().len(), 100_000);
        }
    }
}

/// Whether nothing is sent again in anybody's lifetime.
fn waits_for_ever(retry: RetryPolicy, maximum: Duration) -> bool {
    match retry {
        RetryPolicy::Exponential { initial, .. } => initial == maximum,
        _ => false,
    }
}
