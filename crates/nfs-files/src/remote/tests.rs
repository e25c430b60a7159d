use std::time::Instant;

use nfs_wireless_server::{
    Action, Calls, Faults, Rule, When,
    nfs_wire::{Procedure, Status},
};

use super::*;
use crate::{
    error::Result,
    served::{self, Served},
};

/// Lists a directory of 300 names on a server with faults.
async fn listed(rules: Vec<Rule>) -> Result<usize> {
    let server = Served::start();
    for number in 0..300 {
        std::fs::write(server.path(&format!("{}{number}", "n".repeat(40))), "").unwrap();
    }
    let connections = served::servers();
    let context = Context { servers: &connections, events: &served::Silent };
    let found = find(context, &served::remote(&server, "/")).await?;
    server.service(|service| service.set_faults(Faults::from(rules)));
    let mut children = Children::of(&found)?;
    let mut count = 0;
    while !children.is_done() {
        count += children.next(context).await?.len();
    }
    Ok(count)
}

fn fails(procedure: Procedure, when: When, status: Status) -> Rule {
    Rule { calls: Calls::Procedure(procedure), when, action: Action::Fail(status) }
}

#[tokio::test]
async fn a_directory_that_is_busy_is_listed() {
    use Procedure::{Getattr, Lookup, Readdirplus};
    // Without attributes along, every name is looked up.
    let names_alone = fails(Readdirplus, When::Always, Status::NOTSUPP);
    for rules in [
        vec![fails(Readdirplus, When::Nth(1), Status::STALE)],
        vec![fails(Readdirplus, When::First(4), Status::STALE)],
        vec![fails(Readdirplus, When::First(2), Status::BAD_COOKIE)],
        vec![names_alone.clone(), fails(Lookup, When::First(40), Status::STALE)],
    ] {
        assert_eq!(listed(rules.clone()).await.unwrap(), 300, "{rules:?}");
    }
    // What never ends is told, and what the server does not know at all is not asked for again and again.
    for (rules, attempts) in [
        (vec![fails(Readdirplus, When::Always, Status::STALE)], 400),
        (
            vec![
                fails(Readdirplus, When::Always, Status::STALE),
                fails(Getattr, When::Always, Status::STALE),
            ],
            0,
        ),
    ] {
        let begun = Instant::now();
        let error = listed(rules).await.unwrap_err();
        assert!(error.is_stale(), "{error:?}");
        assert!(begun.elapsed() >= Duration::from_millis(attempts));
    }
    let error = listed(vec![fails(Readdirplus, When::Always, Status::BAD_COOKIE)]).await.unwrap_err();
    assert!(error.to_string().contains("changed while it was listed"), "{error:?}");
}
