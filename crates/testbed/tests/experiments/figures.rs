//! The papers' figures, as exact tables and as the claims that the papers make with them.
//!
//! A commit that changes a number in `snapshots/` says why; `INSTA_UPDATE=always cargo test -p testbed` rewrites them.

use testbed::{
    TraceKind,
    figures::{self, Figure, FigureRow, Table},
};

/// Seeds of a point in the exact tables: few, as every number must come out the same anyway.
const RUNS: u32 = 3;

fn run(name: &str, runs: u32) -> Figure {
    figures::run(&figures::named(name, &[]).unwrap(), runs, 1, &|_| true).unwrap().remove(0)
}

/// The tables of some figures, with the rows of the adaptive policy or without them.
fn tables(names: &[&str], adaptive: bool) -> String {
    let experiments: Vec<_> = names.iter().flat_map(|name| figures::named(name, &[]).unwrap()).collect();
    let figures = figures::run(&experiments, RUNS, 1, &|_| true).unwrap();
    let mut text = String::new();
    for figure in figures {
        for table in figure.tables {
            let of_adaptive = |row: &[String]| row[0].contains("adaptive") || table.title.contains("daptive");
            let rows: Vec<_> =
                table.rows.iter().filter(|row| of_adaptive(row) == adaptive).cloned().collect();
            if !rows.is_empty() {
                text += &format!("{}: {}\n", figure.name, Table { rows, ..table.clone() });
            }
        }
    }
    text
}

const DUBE: [&str; 7] = ["1997-3", "1997-4", "1997-5", "1997-6", "1997-7", "1997-8", "1997-9"];
const TABLES: [&str; 3] = ["1995-table-1", "1995-table-7", "1995-table-9"];
const FIXED: [&str; 7] = ["rxhex-2", "rxhex-3", "rxhex-4", "rxhex-5", "rxhex-6", "rxhex-7", "rxhex-8"];
const MICHALAKIS: [&str; 3] = ["2005-2", "2005-3", "2005-4"];

#[test]
fn classic_policies_give_these_tables() {
    insta::assert_snapshot!("dube", tables(&DUBE, false));
    insta::assert_snapshot!("dube_tables", tables(&TABLES, false));
    insta::assert_snapshot!("rx_hex", tables(&FIXED, false));
    insta::assert_snapshot!("michalakis", tables(&MICHALAKIS, false));
}

#[test]
fn adaptive_policy_gives_these_tables() {
    insta::assert_snapshot!("adaptive", tables(&["1997-5", "1997-6", "1997-7", "2005-4", "rxhex-13"], true));
}

/// Means by series and place on the axis.
fn at<'a>(figure: &'a Figure, panel: &str, series: &str) -> Vec<&'a FigureRow> {
    let rows = figure.rows.iter().filter(|row| row.panel.contains(panel) && row.series == series);
    let rows: Vec<_> = rows.collect();
    assert!(!rows.is_empty(), "{panel}: {series}");
    rows
}

/// Bachmann et al. 1993, figure 17: what is left of headers, and how many are compressed.
#[test]
fn headers_shrink_at_least_as_the_rx_hex_published() {
    let figure = run("rxhex-17", 1);
    insta::assert_snapshot!("headers", figure.tables[0].to_string());
    let cell = |row: &str, column: usize| -> f64 {
        let row = figure.tables[0].rows.iter().find(|it| it[0] == row).expect("a row");
        row[column].parse().expect("a number")
    };
    let (whole, share, mean) = (2, 3, 5);
    let (ours, rx) = ("all", "all, of Rx (published)");
    assert!(cell(ours, share) >= cell(rx, share));
    assert!(cell(ours, mean) / cell(ours, whole) < cell(rx, mean) / cell(rx, whole));
    // Four of them are the XID, which nobody can predict: no codec shortens it.
    for message in ["READ call", "WRITE call"] {
        assert!(cell(message, mean) < 12.0, "{message}");
    }
}

/// Dube et al. 1997 §5.5: with all changes two clients come close to one, and far below two without changes.
#[test]
fn two_clients_with_all_changes_come_close_to_one() {
    // Writes of two clients need twice the air time, and the hosts of one leave half of it idle.
    for (name, close) in [("1997-7", 1.1), ("1997-8", 1.5)] {
        let figure = run(name, 20);
        let mean =
            |series| at(&figure, "1997", series).into_iter().map(|row| row.row.mean_s).collect::<Vec<_>>();
        let (none, all, one) = (mean("no changes"), mean("all changes"), mean("all changes, one client"));
        for place in 0..none.len() {
            assert!(all[place] < close * one[place], "{name}: {} s, {} s", all[place], one[place]);
            assert!(
                place == 0 || all[place] < 0.75 * none[place],
                "{name}: {} s, {} s",
                all[place],
                none[place]
            );
        }
    }
}

/// A published mean that no model of the room reaches.
struct Unreached {
    table: u32,
    /// The row of the table, from 0.
    row: usize,
    what: &'static str,
    reason: &'static str,
}

/// The exceptions among the tables of 1995: ours take between 0.55 and 0.75 of the time.
const UNREACHED: [Unreached; 2] = [
    Unreached { table: 1, row: 3, what: "write, no changes, 80 ms", reason: DOUBTFUL },
    Unreached { table: 6, row: 1, what: "write, no changes, 80 ms", reason: DOUBTFUL },
];

const DOUBTFUL: &str = "something in their testbed lost resent calls far more often than the channel did";

/// Every published mean but the exceptions is within 25 % of ours (Dube et al. 1995, Tables 1 to 9).
#[test]
fn tables_of_1995_come_out_within_a_quarter() {
    let mut unreached = UNREACHED.iter().peekable();
    for table in 1..=9 {
        for (row, found) in run(&format!("1995-table-{table}"), 60).rows.into_iter().enumerate() {
            let published = found.published_mean_s.unwrap();
            let ratio = found.row.mean_s / published;
            let exception = unreached.next_if(|it| (it.table, it.row) == (table, row));
            let allowed = if exception.is_some() { 0.55..0.75 } else { 0.75..1.25 };
            let why = exception.map_or(String::new(), |it| format!(" ({}: {})", it.what, it.reason));
            assert!(
                allowed.contains(&ratio),
                "table {table}, row {row}{why}: ours {} s, published {published} s",
                found.row.mean_s
            );
        }
    }
    assert!(unreached.next().is_none(), "every exception is of a row that is there, in their order");
}

/// Sends of the first transfer after the first of each packet, for each packet.
fn resends(figure: &Figure, series: &str) -> f64 {
    let count =
        |kind| figure.events.iter().filter(|it| it.series == series && it.event.event == kind).count();
    count(TraceKind::SentAgain) as f64 / count(TraceKind::Sent) as f64
}

/// Bachmann et al. 1993 §3: a timeout below the round trip of the window sends everything again, one above it nothing.
#[test]
fn fixed_timeouts_on_a_slow_line_are_too_short_or_just_right() {
    assert!(resends(&run("rxhex-3", 1), "ours") > 5.0);
    let six = resends(&run("rxhex-4", 1), "ours");
    assert!((0.9..2.0).contains(&six), "{six}");
    assert_eq!(resends(&run("rxhex-5", 1), "ours"), 0.0);
}

/// Bachmann et al. 1993 §3 and §6: a second transfer upsets the fixed timeout that was just right, and not an adaptive one.
#[test]
fn second_transfer_upsets_a_fixed_timeout_only() {
    let fixed = run("rxhex-6", 1);
    assert!(resends(&fixed, "first transfer") > 0.3 && resends(&fixed, "second transfer") > 0.3);
    let adaptive = run("rxhex-13", 1);
    assert!(resends(&adaptive, "first transfer") <= 0.01 && resends(&adaptive, "second transfer") <= 0.02);
}

/// Michalakis and Kalofonos 2005 §IV.B: with much bandwidth the round trip decides, if calls wait for each other.
#[test]
fn synchronous_calls_are_bound_by_the_round_trip() {
    let figure = run("2005-2", 1);
    let fastest = |series| at(&figure, "Bandwidth", series).last().unwrap().row.mean_s;
    assert!(
        fastest("Bluetooth, 27 ms: one call at a time") > 3.0 * fastest("802.11b, 4 ms: one call at a time")
    );
    assert!(fastest("Bluetooth, 27 ms: adaptive") < 1.15 * fastest("802.11b, 4 ms: adaptive"));
    for row in figure.rows.iter().filter(|row| row.published_mean_s.is_some()) {
        let ratio = row.row.mean_s / row.published_mean_s.unwrap();
        assert!((1.0..1.12).contains(&ratio), "{} at {}: {ratio}", row.series, row.x);
    }
}

/// Michalakis and Kalofonos 2005 §IV.B: where nothing is lost, a longer timeout is better.
#[test]
fn longer_timeouts_are_better_where_nothing_is_lost() {
    let figure = run("2005-3", 20);
    for series in ["exponential, one call", "exponential, four calls"] {
        let rows = at(&figure, "Timeouts", series);
        let (first, last) = (&rows[0].row, &rows[rows.len() - 1].row);
        assert!(first.mean_s > 1.1 * last.mean_s, "{series}: {} s, {} s", first.mean_s, last.mean_s);
        assert!(first.spurious_resends_per_call > 0.3 && last.spurious_resends_per_call < 0.01);
    }
}

/// Michalakis and Kalofonos 2005 §IV.B: back-off loses time after a disconnection, and a timeout for every lost datagram.
#[test]
fn back_off_loses_time_after_disconnections_and_probes_do_not() {
    let figure = run("2005-4", 10);
    let lost = |lane: &str| -> f64 {
        let row = figure.tables[0].rows.iter().find(|row| row[0] == lane).unwrap();
        row[4].parse().unwrap()
    };
    assert!(lost("exponential, 1 s") > 2.0 && lost("adaptive") < 0.5);
    let mean = |series| at(&figure, "Random loss", series).last().unwrap().row.mean_s;
    assert!(mean("exponential, 1 s") > 10.0 * mean("adaptive"));
}

#[test]
fn unknown_figure_names_those_there_are() {
    let message = figures::named("1997-2", &[]).unwrap_err().to_string();
    assert!(
        message.contains("1997-3") && message.contains("rxhex-13") && message.contains("all"),
        "{message}"
    );
}

#[test]
fn interrupted_figures_show_the_points_that_are_complete() {
    let experiments = figures::named("1997-5", &[]).unwrap();
    let half = figures::jobs(&experiments, 2) / 2;
    let figures = figures::run(&experiments, 2, 1, &|done| done < half).unwrap();
    let rows = figures[0].rows.len();
    assert!(rows > 0 && rows < 90, "{rows}");
}
