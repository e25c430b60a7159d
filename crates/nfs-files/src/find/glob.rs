//! Patterns in server paths, matched against directory listings.

use nfs_wireless_client::FileType;

use super::{Found, MAX_HELD_BYTES, find_if_exists, follow, matching_children};
use crate::{
    context::Context,
    error::{Error, Result},
    escape::escape,
    url::{Remote, is_pattern},
    wildcard::{Wildcard, characters},
};

/// Bytes of what a pattern matches, in all directories together, at most.
const MOST_BYTES: usize = 256 << 20;

/// Finds what a pattern matches, in the order of the names.
pub(super) async fn expand(context: Context<'_>, target: &Remote, pattern: &[u8]) -> Result<Vec<Found>> {
    let components: Vec<&[u8]> = pattern.split(|&byte| byte == b'/').skip(1).collect();
    let literal = components.iter().take_while(|component| !is_pattern(component)).count();
    let base = target.with_path(&[b"/", &components[..literal].join(&b'/')[..]].concat());
    let Some(base) = find_if_exists(context, &base).await? else {
        return Ok(Vec::new());
    };
    let mut matches = vec![base];
    for component in &components[literal..] {
        let (mut next, mut left) = (Vec::new(), MOST_BYTES);
        for directory in matches {
            step(context, directory, component, (&mut next, &mut left)).await?;
        }
        matches = next;
    }
    Ok(matches)
}

/// Adds what one component matches in one directory, if there are so many bytes left for it.
async fn step(
    context: Context<'_>,
    place: Found,
    component: &[u8],
    (found, left): (&mut Vec<Found>, &mut usize),
) -> Result<()> {
    let place = match place.metadata.file_type {
        // A link that leads nowhere matches nothing below it.
        FileType::Symlink => match follow(context, place).await {
            Ok(place) => place,
            Err(_) => return Ok(()),
        },
        _ => place,
    };
    if !place.is_directory() {
        return Ok(());
    }
    if !is_pattern(component) {
        found.extend(find_if_exists(context, &place.remote.join(component)).await?);
        return Ok(());
    }
    let wrong =
        |reason: String| Error::usage(format!("the pattern {} is not valid: {reason}", escape(component)));
    let text = str::from_utf8(component).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let wildcard = Wildcard::new(text).map_err(wrong)?;
    // As in the shell, a name that begins with a dot is matched only by a pattern that does.
    let matches_hidden = text.trim_start_matches('\\').starts_with('.');
    let wanted =
        |name: &[u8]| (matches_hidden || !name.starts_with(b".")) && wildcard.matches(&characters(name));
    let matching = matching_children(context, &place, MAX_HELD_BYTES.min(*left), wanted).await?;
    let bytes = matching.iter().map(|child| size_of::<Found>() + place.remote.path.len() + child.name.len());
    *left = left.saturating_sub(bytes.sum());
    found.extend(matching.into_iter().map(|child| place.child(child)));
    Ok(())
}
