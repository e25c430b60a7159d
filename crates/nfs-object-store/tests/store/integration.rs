//! The tests that `object_store` has for its stores, over UDP and TCP: against the embedded server,
//! against one that loses and forgets, and against nfs-ganesha.

use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::{Procedure, TransportChoice};
use nfs_wireless_server::{Action, Calls, Faults, Rule, When};
use object_store::{Error, integration, path::Path};
use private_servers::ganesha::{Ganesha, Options};

use crate::common::embedded;

#[tokio::test(flavor = "multi_thread")]
async fn over_udp() {
    let (_server, store) = embedded(TransportChoice::Udp, Faults::default()).await;
    everything(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tcp() {
    let (_server, store) = embedded(TransportChoice::Tcp, Faults::default()).await;
    everything(&store).await;
}

/// Calls and replies are lost, blocks are cut, and the server forgets what was not committed.
#[tokio::test(flavor = "multi_thread")]
async fn over_udp_on_a_server_that_loses_and_forgets() {
    use Procedure::{Commit, Create, Link, Lookup, Mkdir, Read, Remove, Rename, Write};
    let rule = |procedure, chance, action| {
        let calls = Calls::Procedure(procedure);
        Rule { calls, when: When::Chance(chance), action }
    };
    let mut rules = vec![
        rule(Write, 0.000_1, Action::Crash),
        rule(Write, 0.01, Action::Shorten(100)),
        rule(Read, 0.01, Action::Shorten(100)),
    ];
    for procedure in [Create, Mkdir, Link, Lookup, Remove, Rename, Commit] {
        rules.push(rule(procedure, 0.05, Action::DropReply));
        rules.push(rule(procedure, 0.05, Action::DropCall));
    }
    for procedure in [Read, Write] {
        rules.push(rule(procedure, 0.001, Action::DropReply));
        rules.push(rule(procedure, 0.001, Action::DropCall));
    }
    let (server, store) = embedded(TransportChoice::Udp, Faults::from(rules)).await;
    everything(&store).await;
    let stats = server.with_service(|service| service.stats());
    assert!(stats.dropped_replies > 20 && stats.dropped_calls > 20, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_ganesha_over_udp() {
    on_ganesha(TransportChoice::Udp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_ganesha_over_tcp() {
    on_ganesha(TransportChoice::Tcp).await;
}

async fn on_ganesha(transport: TransportChoice) {
    let server = Ganesha::start(Options::default());
    let export = server.export();
    let path = export.as_os_str().as_encoded_bytes();
    let store = NfsObjectStore::connect("localhost", path, server.config(transport)).await.unwrap();
    everything(&store).await;
    // No unfinished write is left of all that.
    assert_eq!(unfinished(&export), Vec::<String>::new());
}

/// The temporary names below a directory.
fn unfinished(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(unfinished(&entry.path()));
        } else if name.starts_with(".nfs-object-store.") {
            found.push(name);
        }
    }
    found
}

/// All that applies to a file system: `MultipartStore` and `PaginatedListStore` are not offered.
async fn everything(store: &NfsObjectStore) {
    integration::put_get_delete_list(store).await;
    integration::get_opts(store).await;
    integration::list_uses_directories_correctly(store).await;
    integration::list_with_delimiter(store).await;
    integration::rename_and_copy(store).await;
    integration::copy_if_not_exists(store).await;
    integration::copy_rename_nonexistent_object(store).await;
    integration::stream_get(store).await;
    integration::put_opts(store, false).await;
    integration::put_get_attributes(store).await;
    integration::list_with_offset_exclusivity(store).await;
    integration::multipart_race_condition(store, true).await;
    integration::multipart_out_of_order(store).await;
    let missing = integration::get_nonexistent_object(store, Some(Path::from("a/b/c"))).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
}
