//! The pages, with names escaped for HTML by `maud`.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use percent_encoding::percent_decode_str;

use crate::{
    folder::{Item, Listing, What},
    names::{in_path, is_picture},
};

/// The style and the script of all pages.
pub(crate) const STYLE: &str = include_str!("page.css");
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// What a page may load: what comes from here, and nothing that is in the page itself.
pub(crate) const POLICY: &str = "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Pictures of at most so many bytes are shown in the list.
const PREVIEW_BYTES: u64 = 1 << 20;

/// Why somebody sees no files yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// The page that the address leads to.
    Welcome,
    /// The browser has shown no valid cookie.
    Unknown,
    /// The secret is wrong.
    Wrong,
}

/// The page at which the secret is told.
pub(crate) fn entrance(title: &str, why: Entrance) -> String {
    let said = match why {
        Entrance::Welcome => {
            "To see the files, open the whole address that you were given, with what follows #."
        }
        Entrance::Unknown => {
            "This browser may not see these files: it was not here before, or the time is over. \
             Open the whole address that you were given, or scan it again."
        }
        Entrance::Wrong => "That is not the right secret, or its time is over.",
    };
    let content = html! {
        main.entrance {
            h1 { (title) }
            p { (said) }
            form #enter method="post" action="/enter" {
                label for="secret" { "Secret, the part of the address after #" }
                input #secret name="secret" type="text" autocomplete="off" autocapitalize="none" spellcheck="false" required;
                button type="submit" { "Open" }
            }
            @if why == Entrance::Unknown { p { a href="" { "Try again" } } }
        }
    };
    whole(title, &content)
}

/// A page that says why there is nothing to see.
pub(crate) fn problem(title: &str, said: &str) -> String {
    whole(
        title,
        &html! { main.entrance { h1 { (title) } p { (said) } p { a href="/files/" { "All files" } } } },
    )
}

/// A folder, at a path such as `trip/beach/`, which is empty for the whole.
pub(crate) fn folder(title: &str, path: &str, listing: &Listing) -> String {
    let files = listing.items.iter().filter_map(|item| match item.what {
        What::File(bytes) => Some(bytes),
        What::Folder | What::Other => None,
    });
    let (count, bytes) =
        files.fold((0_u64, 0_u64), |(count, sum), bytes| (count + 1, sum.saturating_add(bytes)));
    let folders = listing.items.iter().filter(|item| item.what == What::Folder).count() as u64;
    let counts = [(folders, "folder"), (count, "file")].into_iter().filter(|(count, _)| *count > 0);
    let mut summary: Vec<_> = counts.map(|(count, what)| counted(count, what)).collect();
    if count > 0 {
        summary.push(size(bytes));
    }
    let content = html! {
        header {
            nav aria-label="Folders" { (crumbs(title, path)) }
            div.summary {
                span { (summary.join(", ")) }
                @if !listing.items.is_empty() { a.all href="?zip" { "Download all (zip)" } }
            }
        }
        main {
            @if listing.items.is_empty() { p.empty { "This folder is empty." } }
            ul {
                @if !path.is_empty() {
                    li.up { a.entry href="../" { span.icon aria-hidden="true" { "↑" } span.name { "Up" } } }
                }
                @for item in &listing.items { li { (entry(item)) } }
            }
            @if !listing.is_complete {
                p.empty { "There are more files than fit on this page. The zip has all of them." }
            }
        }
    };
    let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
    whole(&name.map_or_else(|| title.to_owned(), decoded), &content)
}

fn crumbs(title: &str, path: &str) -> Markup {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    html! {
        @if parts.is_empty() { h1 { (title) } } @else { a href="/files/" { (title) } }
        @for (index, part) in parts.iter().enumerate() {
            span.slash aria-hidden="true" { "/" }
            @if index + 1 == parts.len() { h1 { (decoded(part)) } }
            @else { a href=("../".repeat(parts.len() - index - 1)) { (decoded(part)) } }
        }
    }
}

fn entry(item: &Item) -> Markup {
    let name = String::from_utf8_lossy(&item.name);
    let link = in_path(&item.name);
    let time = html! { @if let Ok(time) = Timestamp::from_second(item.modified.into()) {
        time datetime=(time) { (time.strftime("%Y-%m-%d %H:%M UTC")) }
    } };
    match item.what {
        What::Folder => html! {
            a.entry.folder href={ (link) "/" } {
                span.icon aria-hidden="true" { "▸" }
                span.name { (name) "/" }
                span.facts { (time) }
            }
        },
        What::File(bytes) => html! {
            a.entry href=(link) {
                span.icon aria-hidden="true" {
                    @if is_picture(&item.name) && bytes <= PREVIEW_BYTES {
                        img src=(link) alt="" loading="lazy";
                    } @else {
                        (extension(&name))
                    }
                }
                span.name { (name) }
                span.facts { (size(bytes)) " · " (time) }
            }
            a.get href=(link) download aria-label={ "Download " (name) } { "↓" }
        },
        What::Other => html! {
            span.entry.other {
                span.icon aria-hidden="true" {}
                span.name { (name) }
                span.facts { "a link or a device, not shared" }
            }
        },
    }
}

/// What a name ends in, if that is short enough for a mark beside it.
fn extension(name: &str) -> &str {
    let (before, after) = name.rsplit_once('.').unwrap_or_default();
    let is_short = after.len() <= 4 && after.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_short && !before.is_empty() { after } else { "" }
}

fn whole(title: &str, content: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="/page.css";
                // Browsers ask for one otherwise.
                link rel="icon" href="data:,";
                script src="/page.js" defer {}
            }
            body { (content) }
        }
    }
    .into_string()
}

fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Shows a size in at most three digits.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 999.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1000.0, Some(next));
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", unit.unwrap_or(&"kB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_at_most() {
        let shown =
            [0, 999, 1000, 9_949, 9_950, 999_499, 999_500, 1_500_000, 12_000_000_000, u64::MAX].map(size);
        let expected =
            ["0 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "1.5 MB", "12 GB", "18447 PB"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn no_name_becomes_markup() {
        let name = b"<img src=x onerror=alert(1)>\"'&\xff\n".to_vec();
        let item = |what| Item { name: name.clone(), what, modified: 0 };
        let items = vec![item(What::Folder), item(What::File(1)), item(What::Other)];
        let page = folder("<b>", "%3Ci%3E/", &Listing { items, is_complete: false });
        for raw in ["<b>", "<i>", "<img src=x", "onerror=alert(1)>\""] {
            assert!(!page.contains(raw), "{raw}");
        }
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;&quot;'&amp;\u{fffd}\n"), "{page}");
        assert!(
            page.contains("href=\"%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%22%27%26%FF%0A\""),
            "{page}"
        );
    }
}
