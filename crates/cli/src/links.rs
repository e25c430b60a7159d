//! Changes of links, addresses and routes, as the kernel tells them.

use std::convert::Infallible;

/// Calls `changed` shortly after every change, for as long as this is polled.
#[cfg(linux)]
pub(crate) async fn watch(changed: impl Fn()) -> Infallible {
    use futures_util::{FutureExt, StreamExt};
    use rtnetlink::MulticastGroup as Group;

    /// One change comes as several messages.
    const SETTLING: std::time::Duration = std::time::Duration::from_millis(10);

    let groups = [Group::Link, Group::Ipv4Ifaddr, Group::Ipv6Ifaddr, Group::Ipv4Route, Group::Ipv6Route];
    match rtnetlink::new_multicast_connection(&groups) {
        Ok((connection, _handle, mut messages)) => {
            tokio::spawn(connection);
            while messages.next().await.is_some() {
                tokio::time::sleep(SETTLING).await;
                while let Some(Some(_)) = messages.next().now_or_never() {}
                tracing::debug!("a link, an address or a route has changed");
                changed();
            }
        }
        // Without them an outage lasts until the next question into the silence.
        Err(error) => tracing::debug!(%error, "changes of links cannot be watched"),
    }
    std::future::pending().await
}

/// Nothing tells.
#[cfg(not(linux))]
pub(crate) async fn watch(_: impl Fn()) -> Infallible {
    std::future::pending().await
}
