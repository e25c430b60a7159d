//! Drawing, the same for every kind of file.

use std::{collections::BTreeSet, sync::Once};

use plotters::{
    chart::{ChartBuilder, ChartContext},
    coord::{
        Shift,
        cartesian::Cartesian2d,
        ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
    },
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text},
    prelude::{BitMapBackend, DrawingBackend, SVGBackend},
    style::{
        Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    Plot, PlotError, Point, Scale, Series,
    look::{Look, Shape, style},
};

/// Pixels of a picture, twice those of its place on a page.
pub(super) const SIZE: (u32, u32) = (1720, 1000);

const INK: RGBColor = RGBColor(34, 34, 34);
const QUIET: RGBColor = RGBColor(102, 102, 102);
const GRID: RGBColor = RGBColor(226, 226, 226);
const LINE: u32 = 4;
const THIN: u32 = 2;
/// Half the width of a mark.
const MARK: i32 = 9;
const MARGIN: i32 = 28;
/// The legend's line or mark, and the gap after it.
const SAMPLE: i32 = 84;
/// Above this many points marks become small, so that they do not hide each other.
const CROWDED: usize = 60;

type Area<'a, DB> = DrawingArea<DB, Shift>;
type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Span, Span>>;
type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

pub(super) fn svg(plot: &Plot, text: &mut String) -> Result<(), PlotError> {
    on(plot, &SVGBackend::with_string(text, SIZE).into_drawing_area())
}

/// RGB, row by row.
pub(super) fn bitmap(plot: &Plot) -> Result<Vec<u8>, PlotError> {
    let mut pixels = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
    on(plot, &BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
    Ok(pixels)
}

fn on<DB: DrawingBackend>(plot: &Plot, area: &Area<'_, DB>) -> Result<(), PlotError> {
    let finite = |point: &&Point| point.x.is_finite() && point.y.is_finite();
    if !plot.series.iter().flat_map(|series| &series.points).any(|point| finite(&point)) {
        return Err(PlotError::Empty(plot.title.clone()));
    }
    register_font();
    draw(plot, area).map_err(|error| PlotError::Drawing(error.to_string()))
}

/// Gives plotters the crate's font, once: it looks for none on the machine.
///
/// # Panics
/// Never: the font is valid.
pub fn register_font() {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        let font = include_bytes!("../../fonts/Roboto-Regular-latin.ttf");
        let registered = plotters::style::register_font(FAMILY, FontStyle::Normal, font);
        assert!(registered.is_ok(), "the crate's font is valid");
    });
}

/// In SVG files the reader's sans serif, in bitmaps the crate's font.
const FAMILY: &str = "sans-serif";

fn text(size: i32, colour: RGBColor, h_pos: HPos, v_pos: VPos) -> TextStyle<'static> {
    (FAMILY, size).into_font().color(&colour.to_rgba()).pos(Pos::new(h_pos, v_pos))
}

fn draw<DB: DrawingBackend>(plot: &Plot, area: &Area<'_, DB>) -> Drawn<DB> {
    area.fill(&WHITE)?;
    area.draw(&Text::new(plot.title.clone(), (MARGIN, 22), text(40, INK, HPos::Left, VPos::Top)))?;
    area.draw(&Text::new(plot.subtitle.clone(), (MARGIN, 70), text(29, QUIET, HPos::Left, VPos::Top)))?;
    let below = area.margin(112, 0, 0, 0);
    let named: Vec<&Series> = plot.series.iter().filter(|series| !series.name.is_empty()).collect();
    let name_style = text(31, INK, HPos::Left, VPos::Center);
    let mut legend_width = 0;
    for series in &named {
        legend_width = legend_width.max(area.estimate_text_size(&series.name, &name_style)?.0 as i32);
    }
    let (left, right) = match named.len() {
        0 => (below, None),
        _ => {
            let (left, right) = below.split_horizontally(SIZE.0 as i32 - legend_width - SAMPLE - 2 * MARGIN);
            (left, Some(right))
        }
    };
    chart(plot, area, &left)?;
    let Some(right) = right else { return Ok(()) };
    for (row, series) in named.into_iter().enumerate() {
        let y = 30 + 52 * row as i32;
        sample(&right, series, !plot.groups.is_empty(), y)?;
        right.draw(&Text::new(series.name.clone(), (SAMPLE + 12, y + 3), name_style.clone()))?;
    }
    area.present()
}

/// A piece of the series, beside its name.
fn sample<DB: DrawingBackend>(area: &Area<'_, DB>, series: &Series, bars: bool, y: i32) -> Drawn<DB> {
    if bars {
        return bar(area, series.look, [(14, y - 16), (SAMPLE - 6, y + 16)]);
    }
    line(area, series.look, &[(8, y), (SAMPLE, y)])?;
    mark(area, series.look, (8 + (SAMPLE - 8) / 2, y), size_of(series))
}

fn chart<DB: DrawingBackend>(plot: &Plot, root: &Area<'_, DB>, area: &Area<'_, DB>) -> Drawn<DB> {
    let points = || plot.series.iter().flat_map(|series| &series.points).filter(|it| it.x.is_finite());
    let tops = points().flat_map(|point| [point.y, point.whisker.map_or(point.y, |(_, high)| high)]);
    let top = plot
        .y
        .max
        .unwrap_or_else(|| 1.04 * tops.filter(|it| it.is_finite()).fold(f64::MIN_POSITIVE, f64::max));
    let x = if plot.groups.is_empty() {
        let (low, high) =
            points().fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it.x), high.max(it.x)));
        Span::of(plot.x.scale, low, plot.x.max.unwrap_or(high))
    } else {
        let count = plot.groups.len() as f64;
        Span { scale: Scale::Linear, low: -0.5, high: count - 0.5, labels: Vec::new() }
    };
    let y = Span { scale: Scale::Linear, low: 0.0, high: top, labels: ticks(top, 8) };
    let mut chart = ChartBuilder::on(area)
        .margin_left(MARGIN - 16)
        .margin_right(44)
        .margin_bottom(14)
        .x_label_area_size(96)
        .y_label_area_size(124)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(ShapeStyle { color: GRID.to_rgba(), filled: false, stroke_width: THIN })
        .light_line_style(WHITE)
        .axis_style(ShapeStyle { color: QUIET.to_rgba(), filled: false, stroke_width: THIN })
        .label_style(text(29, INK, HPos::Center, VPos::Center))
        .axis_desc_style(text(31, INK, HPos::Center, VPos::Center))
        .x_desc(plot.x.label.clone())
        .y_desc(plot.y.label.clone())
        .x_labels(40)
        .y_labels(40)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .set_tick_mark_size(plotters::prelude::LabelAreaPosition::Bottom, 10)
        .set_tick_mark_size(plotters::prelude::LabelAreaPosition::Left, 10)
        .draw()?;
    for (group, name) in plot.groups.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(group as f64, 0.0));
        for (row, words) in name.lines().enumerate() {
            let style = text(27, INK, HPos::Center, VPos::Top);
            root.draw(&Text::new(words.to_owned(), (x, y + 10 + 28 * row as i32), style))?;
        }
    }
    for (index, series) in plot.series.iter().enumerate() {
        if plot.groups.is_empty() {
            curve(root, &chart, plot, series, top)?;
        } else {
            bars(root, &chart, plot, index)?;
        }
    }
    Ok(())
}

fn curve<DB: DrawingBackend>(
    root: &Area<'_, DB>,
    chart: &Chart<'_, DB>,
    plot: &Plot,
    series: &Series,
    top: f64,
) -> Drawn<DB> {
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y.clamp(0.0, top)));
    let shown = |it: &&Point| it.y.is_finite() && plot.x.max.is_none_or(|max| it.x <= max) && it.y <= top;
    let points: Vec<&Point> = series.points.iter().filter(shown).collect();
    let places: Vec<(i32, i32)> = points.iter().map(|point| place(point.x, point.y)).collect();
    for point in &points {
        if let Some((low, high)) = point.whisker.filter(|(low, high)| low.is_finite() && high.is_finite()) {
            let (from, to) = (place(point.x, low), place(point.x, high));
            whisker(root, series.look, from, to)?;
        }
    }
    line(root, series.look, &places)?;
    // Marks on the same pixel add nothing but bytes.
    let mut seen = BTreeSet::new();
    let mut new = places.iter().filter(|place| seen.insert(**place));
    new.try_for_each(|&at| mark(root, series.look, at, size_of(series)))
}

fn bars<DB: DrawingBackend>(
    root: &Area<'_, DB>,
    chart: &Chart<'_, DB>,
    plot: &Plot,
    index: usize,
) -> Drawn<DB> {
    let series = &plot.series[index];
    let width = 0.8 / plot.series.len() as f64;
    let offset = width * (index as f64 - 0.5 * (plot.series.len() as f64 - 1.0));
    for point in series.points.iter().filter(|point| point.y.is_finite()) {
        let middle = point.x + offset;
        let corner = |x: f64, y: f64| chart.backend_coord(&(x, y));
        bar(root, series.look, [corner(middle - 0.42 * width, point.y), corner(middle + 0.42 * width, 0.0)])?;
        if let Some((low, high)) = point.whisker {
            whisker(root, Look::Limit, corner(middle, low), corner(middle, high))?;
        }
    }
    Ok(())
}

/// A bar: filled if ours, hollow if published.
fn bar<DB: DrawingBackend>(area: &Area<'_, DB>, look: Look, corners: [(i32, i32); 2]) -> Drawn<DB> {
    let (colour, filled) = match look {
        Look::Curve(number) | Look::Marks(number) => (style(number).colour, true),
        Look::Published(number) => (style(number).colour, false),
        Look::Limit => (QUIET, true),
    };
    if filled {
        area.draw(&Rectangle::new(corners, colour.mix(0.75).filled()))?;
    }
    area.draw(&Rectangle::new(corners, colour.stroke_width(LINE)))
}

fn whisker<DB: DrawingBackend>(
    area: &Area<'_, DB>,
    look: Look,
    low: (i32, i32),
    high: (i32, i32),
) -> Drawn<DB> {
    let stroke = match look {
        Look::Curve(number) | Look::Published(number) | Look::Marks(number) => style(number).colour.mix(0.6),
        Look::Limit => INK.to_rgba(),
    };
    let stroke = stroke.stroke_width(THIN);
    let cap = |(x, y): (i32, i32)| PathElement::new([(x - 8, y), (x + 8, y)], stroke);
    area.draw(&PathElement::new([low, high], stroke))?;
    area.draw(&cap(low))?;
    area.draw(&cap(high))
}

fn line<DB: DrawingBackend>(area: &Area<'_, DB>, look: Look, places: &[(i32, i32)]) -> Drawn<DB> {
    let (stroke, dash) = match look {
        Look::Curve(number) => (style(number).colour.stroke_width(LINE), style(number).dash),
        Look::Limit => (QUIET.stroke_width(THIN), None),
        Look::Published(_) | Look::Marks(_) => return Ok(()),
    };
    match dash {
        None => area.draw(&PathElement::new(places.to_vec(), stroke)),
        Some((size, gap)) => area.draw(&DashedPathElement::new(places.iter().copied(), size, gap, stroke)),
    }
}

fn size_of(series: &Series) -> i32 {
    match series.look {
        Look::Published(_) => MARK + 4,
        Look::Marks(_) if series.points.len() > CROWDED => MARK - 4,
        Look::Curve(_) | Look::Marks(_) | Look::Limit => MARK,
    }
}

fn mark<DB: DrawingBackend>(area: &Area<'_, DB>, look: Look, (x, y): (i32, i32), size: i32) -> Drawn<DB> {
    let (style, hollow) = match look {
        Look::Curve(number) | Look::Marks(number) => (style(number), false),
        Look::Published(number) => (style(number), true),
        Look::Limit => return Ok(()),
    };
    let stroke = style.colour.stroke_width(LINE);
    let outline: Vec<(i32, i32)> = match style.shape {
        Shape::Circle if hollow => return area.draw(&Circle::new((x, y), size, stroke)),
        Shape::Circle => return area.draw(&Circle::new((x, y), size, style.colour.filled())),
        Shape::Cross => {
            area.draw(&PathElement::new([(x - size, y - size), (x + size, y + size)], stroke))?;
            return area.draw(&PathElement::new([(x - size, y + size), (x + size, y - size)], stroke));
        }
        Shape::Square => vec![(-1, -1), (1, -1), (1, 1), (-1, 1)],
        Shape::Triangle => vec![(-1, 1), (0, -1), (1, 1)],
        Shape::TriangleDown => vec![(-1, -1), (0, 1), (1, -1)],
        Shape::Diamond => vec![(0, -1), (1, 0), (0, 1), (-1, 0)],
    };
    let size = if matches!(style.shape, Shape::Square) { size - 1 } else { size + 2 };
    let outline: Vec<(i32, i32)> = outline.iter().map(|(dx, dy)| (x + dx * size, y + dy * size)).collect();
    if hollow {
        // One side at a time: the corners of a thick path are cut off.
        let next = outline.iter().cycle().skip(1);
        return outline
            .iter()
            .zip(next)
            .try_for_each(|(a, b)| area.draw(&PathElement::new([*a, *b], stroke)));
    }
    area.draw(&Polygon::new(outline, style.colour.filled()))
}

/// What an axis covers, and where its labels are.
#[derive(Clone)]
struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    labels: Vec<f64>,
}

impl Span {
    fn of(scale: Scale, low: f64, high: f64) -> Self {
        match scale {
            Scale::Linear => {
                let high = if high > 0.0 { high } else { 1.0 };
                Self { scale, low: -0.01 * high, high: 1.02 * high, labels: ticks(high, 10) }
            }
            Scale::PowersOfTwo => {
                let (low, high) = (low.max(1.0).log2().floor(), high.max(1.0).log2().ceil());
                let labels = (low as i32..=high as i32).map(|power| f64::from(power).exp2()).collect();
                Self { scale, low: (low - 0.1).exp2(), high: (high + 0.1).exp2(), labels }
            }
        }
    }
}

impl Ranged for Span {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let spread = |value: f64| if self.scale == Scale::PowersOfTwo { value.log2() } else { value };
        let (low, high) = (spread(self.low), spread(self.high));
        from + (f64::from(to - from) * (spread(*value) - low) / (high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

/// Multiples of 1, 2 or 5 times a power of ten from 0 to `high`, at most `most` and one more.
fn ticks(high: f64, most: usize) -> Vec<f64> {
    let rough = high / most as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    (0..=(high / step * 1.000_001) as usize).map(|index| index as f64 * step).collect()
}

/// A number as short as it can be.
fn number(value: f64) -> String {
    if value.abs() >= 1.0 || value == 0.0 {
        let rounded = (value * 100.0).round() / 100.0;
        format!("{rounded}")
    } else {
        format!("{value:.3}").trim_end_matches('0').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(80.0, 8), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]);
        assert_eq!(ticks(0.9, 8).len(), 5);
        assert_eq!(ticks(1234.0, 8), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 1200.0]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.05, 2.5, 20.0, 4096.0].map(number), ["0", "0.05", "2.5", "20", "4096"]);
    }
}
