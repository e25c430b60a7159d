//! `ls -l` through the cache of `nfsw mount`: with nothing held, into a disconnection, and again and again.

use std::time::Duration;

use super::{Figure, Table, number::decimals};
use crate::{
    Error, Outage, Plan,
    listing::list_mounted,
    mounted::{Listed, Repeat},
};

/// A table of listings.
#[derive(Clone, Debug)]
pub(super) struct Mounted {
    pub(super) title: String,
    pub(super) entries: u32,
    /// Link and client, with the disconnections of the last row.
    pub(super) plan: Plan,
}

/// How long before a disconnection the listing of the second row begins.
const BEFORE: Duration = Duration::from_millis(100);

/// Pause after each listing of the last row.
const PAUSE: Duration = Duration::from_millis(100);

/// When a listing is given up.
const PATIENCE: Duration = Duration::from_secs(60);

impl Mounted {
    pub(super) fn show(&self, seed: u64, figure: &mut Figure) -> Result<(), Error> {
        let first = self.plan.outages.first().copied();
        let list = |outages: Vec<Outage>, starts, end, repeat| {
            let plan = Plan { outages, ..self.plan.clone() };
            list_mounted(&plan, self.entries, seed, (starts, end), repeat)
        };
        let nothing_held = list(Vec::new(), Duration::ZERO, PATIENCE, Repeat::Once)?;
        let quiet = nothing_held.first().map(Listed::took).unwrap_or_default();
        let mut rows = vec![self.row("nothing held", &nothing_held, None)];
        if let Some(outage) = first {
            let starts = outage.at.saturating_sub(BEFORE);
            let listed = list(vec![outage], starts, PATIENCE, Repeat::Once)?;
            let best = quiet + outage.length;
            rows.push(self.row("nothing held, begun 0.1 s before a disconnection", &listed, Some(best)));
        }
        if let Some(last) = self.plan.outages.last() {
            let (outages, end) = (self.plan.outages.clone(), last.at + last.length + PATIENCE / 4);
            let listed = list(outages, Duration::ZERO, end, Repeat::Every(PAUSE))?;
            let held = listed.get(1..).unwrap_or_default();
            rows.push(self.row("held, again and again through all disconnections", held, None));
        }
        let header = ["", "listings", "errors", "median (s)", "99 % within (s)", "longest (s)", "lost (s)"];
        let header = header.map(str::to_owned).to_vec();
        figure.tables.push(Table { title: self.title.clone(), header, rows });
        Ok(())
    }

    /// A row of the table; `best` is what no client can do better than.
    fn row(&self, what: &str, listed: &[Listed], best: Option<Duration>) -> Vec<String> {
        let mut times: Vec<f64> = listed.iter().map(|it| it.took().as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (times.len() as f64 * part).ceil() as usize;
            times.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        let whole = |it: &&Listed| it.errors == 0 && it.entries as u64 == u64::from(self.entries);
        let errors = listed.iter().filter(|it| !whole(it)).count();
        let lost = best.map_or_else(String::new, |best| decimals((at(1.0) - best.as_secs_f64()).max(0.0), 2));
        vec![
            what.to_owned(),
            listed.len().to_string(),
            errors.to_string(),
            decimals(at(0.5), 3),
            decimals(at(0.99), 3),
            decimals(at(1.0), 3),
            lost,
        ]
    }
}
