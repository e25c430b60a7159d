//! Patterns in server paths, matched against directory listings.

mod component;

use nfs_wireless_client::FileType;

use self::component::Matcher;
use super::{Found, find_if_exists, follow, matching_children};
use crate::{
    connections::Connections,
    report::Reporter,
    target::{Remote, is_pattern},
};

/// Finds what a pattern matches, in the order of the names.
pub(super) async fn expand(
    connections: &Connections,
    reporter: &Reporter,
    target: &Remote,
    pattern: &[u8],
) -> anyhow::Result<Vec<Found>> {
    let components: Vec<&[u8]> = pattern.split(|&byte| byte == b'/').skip(1).collect();
    let literal = components.iter().take_while(|component| !is_pattern(component)).count();
    let base = target.with_path(&[b"/", &components[..literal].join(&b'/')[..]].concat());
    let Some(base) = find_if_exists(connections, reporter, &base).await? else {
        return Ok(Vec::new());
    };
    let mut matches = vec![base];
    for component in &components[literal..] {
        let mut next = Vec::new();
        for directory in matches {
            step(connections, reporter, directory, component, &mut next).await?;
        }
        matches = next;
    }
    Ok(matches)
}

/// Adds what one component matches in one directory.
async fn step(
    connections: &Connections,
    reporter: &Reporter,
    place: Found,
    component: &[u8],
    found: &mut Vec<Found>,
) -> anyhow::Result<()> {
    let place = match place.metadata.file_type {
        // A link that leads nowhere matches nothing below it.
        FileType::Symlink => match follow(connections, reporter, place).await {
            Ok(place) => place,
            Err(_) => return Ok(()),
        },
        _ => place,
    };
    if !place.is_directory() {
        return Ok(());
    }
    if !is_pattern(component) {
        found.extend(find_if_exists(connections, reporter, &place.remote.join(component)).await?);
        return Ok(());
    }
    let matcher = Matcher::new(component)?;
    let wanted = |name: &[u8]| matcher.matches(name);
    let matching = matching_children(connections, reporter, &place, wanted).await?;
    found.extend(matching.into_iter().map(|child| place.child(child)));
    Ok(())
}
