//! `nfsw df`: free space.

use nfs_files::Context;

use crate::{
    args::DfArgs,
    error::ResultExt,
    find::find_all_or_report,
    report::{Reporter, event},
    units,
};

pub(super) async fn run(arguments: &DfArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let (total, left) = match (arguments.inodes, arguments.human_readable) {
        (true, _) => ("Inodes", "Free"),
        (false, true) => ("Size", "Avail"),
        (false, false) => ("1K-blocks", "Available"),
    };
    let mut rows = vec![["Target", total, "Used", left, "Use%", "Export"].map(str::to_owned)];
    for target in &arguments.targets {
        for found in find_all_or_report(context, target).await? {
            let space = found.client.fs_stat(found.handle).await.at(&found.remote)?;
            let export = crate::text::escape(found.client.export()).into_owned();
            if reporter.json() {
                let mut event =
                    event("space", &[("path", &found.remote.path), ("export", found.client.export())]);
                for (key, count) in [
                    ("total_bytes", space.tbytes),
                    ("free_bytes", space.fbytes),
                    ("available_bytes", space.abytes),
                    ("total_files", space.tfiles),
                    ("free_files", space.ffiles),
                ] {
                    event[key] = count.into();
                }
                reporter.event(&event)?;
                continue;
            }
            let (all, free, available) = if arguments.inodes {
                (space.tfiles, space.ffiles, space.afiles)
            } else {
                (space.tbytes, space.fbytes, space.abytes)
            };
            let used = all.saturating_sub(free);
            let show = |count: u64| match (arguments.inodes, arguments.human_readable) {
                (_, true) => units::short_bytes(count),
                (true, false) => count.to_string(),
                (false, false) => (count / 1024).to_string(),
            };
            let percent = percent(used, available);
            rows.push([found.remote.to_string(), show(all), show(used), show(available), percent, export]);
        }
    }
    if reporter.json() || rows.len() == 1 {
        return Ok(());
    }
    reporter.print(table(&rows).as_bytes())
}

/// The share in use of what ordinary users may use, rounded up as `df` does.
fn percent(used: u64, available: u64) -> String {
    let usable = u128::from(used) + u128::from(available);
    if usable == 0 { "-".to_owned() } else { format!("{}%", (u128::from(used) * 100).div_ceil(usable)) }
}

fn table(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [w0, w1, w2, w3, w4] = [0, 1, 2, 3, 4].map(width);
    rows.iter()
        .map(|[target, all, used, left, percent, export]| {
            format!("{target:<w0$} {all:>w1$} {used:>w2$} {left:>w3$} {percent:>w4$} {export}\n")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_in_use_leaves_out_what_is_reserved() {
        assert_eq!(percent(50, 50), "50%");
        assert_eq!(percent(1, 999), "1%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "50%");
    }
}
