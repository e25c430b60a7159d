//! The line that a mount shows on a terminal, and the words of `nfsw mount --status`.

use std::time::{Duration, Instant};

use nfs_mount::Snapshot;

use crate::{
    text::{cut, escape},
    units,
};

/// Columns between two parts.
const GAP: &str = "  ";

/// Columns of a file's name, at least.
const NAME: usize = 12;

/// Words the state of a mount, in so many columns: what matters less is left out where there is no room.
pub(crate) fn line(snapshot: &Snapshot, now: Instant, width: usize) -> String {
    let age = now.saturating_duration_since(snapshot.link_since);
    let mut line = link_words(snapshot.link.word(), age);
    let hits = hit_words(snapshot.stats.without_calls, snapshot.stats.operations);
    let held = format!("{} held", units::bytes(snapshot.stats.held_bytes));
    let waiting = match snapshot.waiting {
        0 => None,
        1 => Some("1 request waits".to_owned()),
        count => Some(format!("{count} requests wait")),
    };
    for part in [waiting, Some(hits), Some(held)].into_iter().flatten() {
        if line.chars().count() + GAP.len() + part.chars().count() <= width {
            line = line + GAP + &part;
        }
    }
    if let Some(name) = &snapshot.fetching {
        let begin = format!("{GAP}fetching ");
        let room = width.saturating_sub(line.chars().count() + begin.chars().count());
        if room >= NAME {
            line = line + &begin + &cut(&escape(name), room);
        }
    }
    // Where there is no room for the mark of a cut either, it is cut without one.
    let line = if line.chars().count() > width { cut(&line, width) } else { line };
    line.chars().take(width).collect()
}

/// Words whether the server responds, and for how long it has not.
pub(crate) fn link_words(link: &str, age: Duration) -> String {
    match link {
        "down" => format!("link down for {}", units::whole_seconds(age.max(Duration::from_secs(1)))),
        "up" => "link up".to_owned(),
        "ended" => "the share has ended".to_owned(),
        _ => "another server is there".to_owned(),
    }
}

/// Words the share of the requests that needed no call.
pub(crate) fn hit_words(hits: u64, operations: u64) -> String {
    // Rounded down: 100 % means all of them.
    match (u128::from(hits) * 100).checked_div(operations.into()) {
        Some(share) => format!("{share} % from the cache"),
        None => "unused".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use nfs_mount::Link;

    use super::*;

    fn snapshot(link: Link, since: Instant) -> Snapshot {
        let mut stats = nfs_mount::Stats::default();
        (stats.operations, stats.without_calls, stats.held_bytes) = (200, 189, 3 << 20);
        let fetching = Some(b"photos of the summer/cat and dog.jpg".to_vec());
        Snapshot {
            stats,
            link,
            link_since: since,
            waiting: 2,
            fetching,
            is_unused: false,
            used_at: since,
            hoard_is_full: false,
        }
    }

    #[test]
    fn the_line_fits_any_width() {
        let now = Instant::now();
        let up = snapshot(Link::Up, now);
        assert_eq!(
            line(&up, now, 200),
            "link up  2 requests wait  94 % from the cache  3.0 MiB held  fetching photos of the summer/cat and dog.jpg"
        );
        assert_eq!(line(&up, now, 50), "link up  2 requests wait  94 % from the cache");
        assert_eq!(line(&up, now, 8), "link up");
        let down = snapshot(Link::Down, now);
        assert!(line(&down, now + Duration::from_secs(75), 80).starts_with("link down for 1 min 15 s"));
        for width in 0..150 {
            assert!(line(&up, now, width).chars().count() <= width, "{width}");
        }
    }
}
