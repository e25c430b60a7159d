use proptest::prelude::*;

use super::*;
use crate::{Action, Calls, Rule, When};

#[derive(Clone, Debug)]
enum Step {
    Write,
    Commit,
    Null,
    Pass(u64),
    Crash,
    Strike(Action),
}

fn step() -> impl Strategy<Value = Step> {
    let delay = (0_u64..50).prop_map(|time| Action::DelayReply(Duration::from_millis(time)));
    let action = prop_oneof![
        delay,
        Just(Action::ReorderReply),
        Just(Action::DuplicateReply),
        Just(Action::DropReply),
        Just(Action::DropCall),
    ];
    prop_oneof![
        4 => Just(Step::Write),
        1 => Just(Step::Commit),
        4 => Just(Step::Null),
        4 => (0_u64..40).prop_map(Step::Pass),
        1 => Just(Step::Crash),
        2 => action.prop_map(Step::Strike),
    ]
}

proptest! {
    #[test]
    fn time_is_never_due_twice_and_every_call_is_answered(
        steps in prop::collection::vec(step(), 0..60),
        threads in 1_usize..4,
    ) {
        let mut bench = Bench::with(slow(threads), Memory::default());
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let mut replies = 0;
        let mut expected = 0;
        let mut is_exact = true;
        for step in steps {
            match step {
                Step::Write => {
                    let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
                    replies += bench.exchange(&message).len();
                    expected += 1;
                }
                Step::Commit => {
                    let file = file.clone();
                    let arguments = COMMIT3args { file, offset: 0, count: 0 };
                    let message = bench.message(Procedure::Commit.number(), &arguments);
                    replies += bench.exchange(&message).len();
                    expected += 1;
                }
                Step::Null => {
                    let message = bench.message(0, &Void);
                    replies += bench.exchange(&message).len();
                    expected += 1;
                }
                Step::Pass(time) => replies += bench.pass(Duration::from_millis(time)).len(),
                Step::Crash => {
                    bench.service.crash();
                    is_exact = false;
                }
                Step::Strike(action) => {
                    let calls = Calls::Any;
                    let when = When::Chance(0.5);
                    bench.service.set_faults(Faults::from(vec![Rule { calls, when, action }]));
                    is_exact &= matches!(action, Action::DelayReply(_) | Action::ReorderReply);
                }
            }
            bench.service.handle_timeout(bench.now);
            replies += bench.replies().len();
            prop_assert!(bench.service.poll_timeout().is_none_or(|due| due > bench.now));
        }
        while let Some(due) = bench.service.poll_timeout() {
            let wait = due - bench.now;
            replies += bench.pass(wait).len();
        }
        if is_exact {
            prop_assert_eq!(replies, expected);
        }
    }
}
