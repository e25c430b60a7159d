use std::{
    cell::RefCell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Instant,
};

use nfs_wireless_server::{
    Action, Calls, Faults, Rule, When,
    nfs_wire::{Procedure, Status},
};

use super::*;
use crate::{
    error::Result,
    served::{self, Call, Served},
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

/// Keeps what failed.
#[derive(Default)]
struct Failures(RefCell<Vec<String>>);

impl crate::Events for Failures {
    fn tell(&self, event: &Event<'_>) -> Result<()> {
        if let Event::Failed(error) = event {
            self.0.borrow_mut().push(error.to_string());
        }
        Ok(())
    }
}

#[tokio::test]
async fn what_is_listed_and_not_found_is_told_and_what_was_removed_is_not() {
    use Procedure::{Lookup, Readdirplus};
    const NAMES: usize = 40;
    let names_alone = || fails(Readdirplus, When::Always, Status::NOTSUPP);
    // How many entries fail, and how many of these are named.
    for (lookups, is_removed, is_target, unfound, told) in [
        (When::Nth(3), false, false, 1, 1),
        (When::Nth(3), true, false, 1, 0),
        (When::Nth(3), false, true, 1, 0),
        (When::First(25), false, false, 25, MAX_UNSAFE_NAMES + 1),
        (When::Always, false, false, NAMES, MAX_UNSAFE_NAMES + 1),
    ] {
        for status in [Status::NOENT, Status::NOTDIR, Status::IO] {
            if is_removed && status != Status::NOENT {
                continue;
            }
            let listings = AtomicUsize::new(0);
            let server = Served::watched(move |root, call| {
                // Each name was removed when the directory is listed again.
                if matches!(call, Call::Listed(_)) && is_removed && listings.fetch_add(1, Relaxed) == 0 {
                    (0..NAMES)
                        .for_each(|number| std::fs::remove_file(root.join(number.to_string())).unwrap());
                }
            });
            for number in 0..NAMES {
                std::fs::write(server.path(&number.to_string()), "").unwrap();
            }
            let connections = served::servers();
            let failures = Failures::default();
            let context = Context { servers: &connections, events: &failures };
            let found = find(context, &served::remote(&server, "/")).await.unwrap();
            let mut rules = vec![names_alone()];
            if !is_removed {
                rules.push(fails(Lookup, lookups, status));
            }
            server.service(|service| service.set_faults(Faults::from(rules)));
            let mut children = Children::of(&found).unwrap();
            if is_target {
                children = children.of_target();
            }
            let count = children.next(context).await.unwrap().len();
            let failures = failures.0.into_inner();
            let case = format!("{lookups:?} {is_removed} {is_target} {status}: {failures:?}");
            assert!(children.is_done(), "{case}");
            assert_eq!(count, if is_removed { 0 } else { NAMES - unfound }, "{case}");
            assert_eq!(failures.len(), told, "{case}");
            assert_eq!(children.has_vanished(), status == Status::NOENT, "{case}");
        }
    }
}
