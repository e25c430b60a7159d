//! Plots as SVG and PNG from one description.
//!
//! Colours are those of Okabe and Ito, which people with colour blindness can tell apart; marks and dashes differ as well,
//! so that a plot survives greyscale. Published numbers have hollow marks.

mod draw;
mod look;

use thiserror::Error;

pub use draw::register_font;
pub use look::Look;

/// A picture: curves over an axis, or bars in groups.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Under which conditions.
    pub subtitle: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, from 0.
    pub y: Axis,
    /// What is drawn, first to last; names go to the legend in this order.
    pub series: Vec<Series>,
    /// Names of groups of bars, of up to three lines. Not empty: `x` counts groups from 0, and every series is a bar in each of them.
    pub groups: Vec<String>,
}

/// One axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// How numbers are spread.
    pub scale: Scale,
    /// Largest number shown; `None` shows all.
    pub max: Option<f64>,
}

/// How numbers are spread over an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0.
    #[default]
    Linear,
    /// Every power of two takes the same room; numbers are at least 1.
    PowersOfTwo,
}

/// Points that belong together.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name in the legend; none if empty.
    pub name: String,
    /// How it is drawn.
    pub look: Look,
    /// Its points, in the order of their line.
    pub points: Vec<Point>,
}

/// A point with its uncertainty or range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// On the horizontal axis.
    pub x: f64,
    /// On the vertical axis.
    pub y: f64,
    /// Lower and upper end of a whisker.
    pub whisker: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }
}

impl Point {
    /// A point without a whisker.
    pub const fn at(x: f64, y: f64) -> Self {
        Self { x, y, whisker: None }
    }
}

impl Plot {
    /// The plot as an SVG document.
    ///
    /// # Errors
    /// [`PlotError`] if there is nothing to draw.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        draw::svg(self, &mut text)?;
        // Drawn at twice the size, so that whole pixels are fine enough.
        let (width, height) = draw::SIZE;
        let double = format!("width=\"{width}\" height=\"{height}\"");
        Ok(text.replacen(&double, &format!("width=\"{}\" height=\"{}\"", width / 2, height / 2), 1))
    }

    /// The plot as a PNG file.
    ///
    /// # Errors
    /// [`PlotError`] if there is nothing to draw.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        let pixels = draw::bitmap(self)?;
        let mut file = Vec::new();
        let (width, height) = draw::SIZE;
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&pixels))
            .map_err(|error| PlotError::Drawing(error.to_string()))?;
        Ok(file)
    }
}

/// Why there is no picture.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PlotError {
    /// No series has a point.
    #[error("{0:?} has no points to plot")]
    Empty(String),
    /// The drawing library failed.
    #[error("drawing failed: {0}")]
    Drawing(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Plot {
        let line = |name: &str, look, slope: f64| Series {
            name: name.to_owned(),
            look,
            points: (0..9)
                .map(|step| {
                    let (x, y) = (f64::from(step) * 20.0, 30.0 + slope * f64::from(step));
                    Point { x, y, whisker: Some((y - 2.0, y + 1.0 + slope / 3.0)) }
                })
                .collect(),
        };
        Plot {
            title: "Reads".to_owned(),
            subtitle: "1 MB, 10 runs a point".to_owned(),
            x: Axis::linear("mean bad period (ms)"),
            y: Axis::linear("response time (s)"),
            series: vec![
                line("no changes", Look::Curve(0), 5.0),
                line("hybrid", Look::Curve(1), 4.0),
                line("retransmit", Look::Curve(2), 2.0),
                line("both", Look::Curve(3), 1.0),
                line("no changes, 1995", Look::Published(0), 5.5),
                line("limit", Look::Limit, 0.2),
            ],
            groups: Vec::new(),
        }
    }

    fn bars() -> Plot {
        let series = |name: &str, look, add: f64| Series {
            name: name.to_owned(),
            look,
            points: vec![
                Point { x: 0.0, y: 20.0 + add, whisker: Some((19.0, 24.0)) },
                Point { x: 1.0, y: 40.0 + add, whisker: None },
            ],
        };
        Plot {
            groups: vec!["40 ms".to_owned(), "80 ms".to_owned()],
            series: vec![series("ours", Look::Curve(0), 0.0), series("published", Look::Published(0), 3.0)],
            ..curves()
        }
    }

    #[test]
    fn svg_has_names_axes_and_the_size_for_a_page() {
        for plot in [curves(), bars()] {
            let svg = plot.svg().expect("points");
            assert!(
                svg.starts_with("<svg width=\"860\" height=\"500\" viewBox=\"0 0 1720 1000\""),
                "{}",
                &svg[..99]
            );
            for text in [&plot.title, &plot.subtitle, &plot.y.label].into_iter().chain(&plot.groups) {
                assert!(svg.contains(text.as_str()), "{text}");
            }
            for series in &plot.series {
                assert!(svg.contains(&series.name), "{}", series.name);
            }
        }
    }

    /// Text comes from the font in the crate: the same picture everywhere.
    #[test]
    fn png_has_text_without_any_font_installed() {
        let dark = |plot: &Plot| {
            let pixels = draw::bitmap(plot).expect("points");
            pixels.chunks(3).filter(|pixel| pixel.iter().all(|&value| value < 100)).count()
        };
        let with = curves();
        let without = Plot { title: String::new(), ..curves() };
        assert!(dark(&with) > dark(&without) + 100);
        assert!(with.png().expect("points").starts_with(b"\x89PNG"));
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        assert!(matches!(Plot::default().svg(), Err(PlotError::Empty(_))));
        let point = Point::at(0.0, f64::NAN);
        let series = vec![Series { points: vec![point], ..Series::default() }];
        assert!(matches!(Plot { series, ..curves() }.png(), Err(PlotError::Empty(_))));
    }
}
