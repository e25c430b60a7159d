use super::*;

#[tokio::test]
async fn what_mounts_is_small_enough_for_a_stack() {
    let (reactor, config) = (Reactor::start(false).await.unwrap(), ClientConfig::default());
    let finder = Finder { reactor: &reactor, config: &config, host: "localhost" };
    let bytes = size_of_val(&finder.mount(b"/"));
    assert!(bytes < 4096, "{bytes} bytes are copied from frame to frame");
}
