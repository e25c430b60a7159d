//! A report on disk: one HTML page, and every figure as SVG, PNG, CSV and JSON.

use std::{
    fmt::{self, Write as _},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    export,
    figures::{self, Figure, Table},
    plot::PlotError,
};

/// Writes figures to a directory, which is made if it does not exist, and returns the path of the page.
///
/// # Errors
/// [`ReportError`] when a file cannot be written or a plot cannot be drawn.
pub fn write(figures: &[Figure], runs: u32, seed: u64, directory: &Path) -> Result<PathBuf, ReportError> {
    let create = |error| ReportError::File { path: directory.to_owned(), error };
    fs::create_dir_all(directory).map_err(create)?;
    let mut page = String::new();
    head(&mut page, figures, runs, seed)?;
    for figure in figures {
        let files = files(figure, directory)?;
        section(&mut page, figure, &files)?;
    }
    page.push_str("</main>\n</body>\n</html>\n");
    let index = directory.join("index.html");
    save(&index, page.as_bytes())?;
    Ok(index)
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file or the directory cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A plot cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The page cannot be composed.
    #[error("cannot compose the page: {0}")]
    Page(#[from] fmt::Error),
}

/// The names of a figure's files beside the page.
struct Files {
    svg: Vec<String>,
    names: Vec<String>,
}

fn files(figure: &Figure, directory: &Path) -> Result<Files, ReportError> {
    let mut files = Files { svg: Vec::new(), names: Vec::new() };
    let mut add = |name: String, contents: &[u8]| {
        save(&directory.join(&name), contents)?;
        files.names.push(name);
        Ok::<(), ReportError>(())
    };
    for (number, plot) in (1..).zip(&figure.plots) {
        let name = match figure.plots.len() {
            1 => figure.name.clone(),
            _ => format!("{}-plot-{number}", figure.name),
        };
        let svg = plot.svg()?;
        add(format!("{name}.svg"), svg.as_bytes())?;
        add(format!("{name}.png"), &plot.png()?)?;
        files.svg.push(svg);
    }
    if !figure.rows.is_empty() {
        add(format!("{}.csv", figure.name), export::csv(&figure.rows).as_bytes())?;
    }
    if !figure.events.is_empty() {
        add(format!("{}-packets.csv", figure.name), export::csv(&figure.events).as_bytes())?;
    }
    let json = serde_json::to_vec(figure).map_err(|error| failed(directory, error.into()))?;
    add(format!("{}.json", figure.name), &json)?;
    Ok(files)
}

fn save(path: &Path, contents: &[u8]) -> Result<(), ReportError> {
    fs::write(path, contents).map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: io::Error) -> ReportError {
    ReportError::File { path: path.to_owned(), error }
}

fn head(page: &mut String, figures: &[Figure], runs: u32, seed: u64) -> fmt::Result {
    let last = seed.wrapping_add(u64::from(runs.saturating_sub(1)));
    let (title, what) = if figures.iter().all(|figure| figure.name == figures::OWN) {
        ("Response times over a bad link", "Response times computed")
    } else {
        ("NFS over bad links: published and repeated", "Published figures and tables, run again")
    };
    writeln!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n\
         <p>{what} by the client, the server and the link emulator of nfsw under one \
         virtual clock. {runs} runs a point with the seeds {seed} to {last}; contenders meet the same fades. The same command \
         gives the same numbers on every machine.</p>\n\
         <p>In plots, lines with filled marks are ours, hollow marks are published. Whiskers are explained below each \
         title. <em>Limit</em> is the earliest end that the channel or the hosts allow for this block size; <em>over \
         limit</em> compares run by run.</p>\n<nav>\n<ul>"
    )?;
    for figure in figures {
        writeln!(
            page,
            "<li><a href=\"#{0}\">{0}</a> {1}</li>",
            Escaped(&figure.name),
            Escaped(&figure.title)
        )?;
    }
    page.push_str("</ul>\n</nav>\n");
    Ok(())
}

fn section(page: &mut String, figure: &Figure, files: &Files) -> fmt::Result {
    let (name, title) = (Escaped(&figure.name), Escaped(&figure.title));
    writeln!(page, "<section id=\"{name}\">\n<h2><a href=\"#{name}\">{name}</a> {title}</h2>")?;
    writeln!(page, "<p class=\"source\">{}</p>", Escaped(&figure.source))?;
    list(page, "Published", figure.says.iter().map(String::as_str))?;
    for svg in &files.svg {
        writeln!(page, "<figure>{}</figure>", svg.trim())?;
    }
    list(page, "Ours and theirs", figure.remarks.iter().copied())?;
    for table in &figure.tables {
        self::table(page, table)?;
    }
    page.push_str("<p class=\"files\">");
    for file in &files.names {
        write!(page, "<a href=\"{0}\">{0}</a> ", Escaped(file))?;
    }
    page.push_str("</p>\n</section>\n");
    Ok(())
}

fn list<'a>(page: &mut String, title: &str, items: impl Iterator<Item = &'a str>) -> fmt::Result {
    let items: Vec<String> = items.map(|item| format!("<li>{}</li>", Escaped(item))).collect();
    if items.is_empty() {
        return Ok(());
    }
    writeln!(page, "<h3>{title}</h3>\n<ul>{}</ul>", items.join("\n"))
}

/// Rows above which a table starts folded.
const LONG: usize = 20;

fn table(page: &mut String, table: &Table) -> fmt::Result {
    let open = if table.rows.len() > LONG { "" } else { " open" };
    writeln!(
        page,
        "<details{open}><summary>{}</summary>\n<div class=\"wide\"><table>",
        Escaped(&table.title)
    )?;
    let row = |page: &mut String, cells: &[String], tag: &str| -> fmt::Result {
        page.push_str("<tr>");
        for cell in cells {
            write!(page, "<{tag}>{}</{tag}>", Escaped(cell))?;
        }
        page.push_str("</tr>\n");
        Ok(())
    };
    row(page, &table.header, "th")?;
    table.rows.iter().try_for_each(|cells| row(page, cells, "td"))?;
    page.push_str("</table></div></details>\n");
    Ok(())
}

/// Text with the characters that HTML reserves replaced.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            other => f.write_char(other),
        })
    }
}

const STYLE: &str = "
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin: 3rem 0 .3rem; border-top: 1px solid #ddd; padding-top: 1.2rem; }
h2 a { color: #0072b2; text-decoration: none; }
h3 { font-size: 1rem; margin: 1rem 0 .2rem; }
nav ul { columns: 2; column-gap: 2rem; padding-left: 1.2rem; font-size: .92rem; }
nav li { break-inside: avoid; }
ul { margin: .2rem 0; padding-left: 1.2rem; }
.source, .files { color: #666; font-size: .9rem; margin: .2rem 0; }
figure { margin: 1rem 0; }
svg { width: 100%; height: auto; display: block; }
details { margin: 1rem 0; }
summary { cursor: pointer; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { padding: .15rem .45rem; text-align: right; border-bottom: 1px solid #eee; white-space: nowrap; }
th { border-bottom: 2px solid #bbb; }
th:first-child, td:first-child { text-align: left; }
@media (max-width: 40rem) { nav ul { columns: 1; } }
@media print { details > * { display: block; } }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures;

    #[test]
    fn report_has_a_page_and_every_file_it_links_to() {
        let directory = std::env::temp_dir().join(format!("nfsw-report-{}", std::process::id()));
        let mut experiments = figures::named("1995-table-7", &[]).expect("known");
        experiments.extend(figures::named("rxhex-5", &[]).expect("known"));
        let figures = figures::run(&experiments, 2, 1, &|_| true).expect("valid plans");
        let page = write(&figures, 2, 1, &directory).expect("a writable directory");
        let text = fs::read_to_string(page).expect("written");
        let links: Vec<&str> =
            text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let files: Vec<&str> = links.into_iter().filter(|link| !link.starts_with('#')).collect();
        assert_eq!(files.len(), 8, "{files:?}");
        for file in files {
            let path = directory.join(file);
            assert!(fs::metadata(&path).is_ok_and(|it| it.len() > 100), "{}", path.display());
        }
        assert_eq!(text.matches("<svg ").count(), 2);
        assert!(text.contains("<td>30.7</td>"), "the published time is beside ours");
        fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(Escaped("a < b & \"c\" > d").to_string(), "a &lt; b &amp; &quot;c&quot; &gt; d");
    }
}
