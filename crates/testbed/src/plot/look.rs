//! What series look like.

use plotters::style::RGBColor;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Ours: a line with filled marks, in the n-th colour, mark and dash.
    Curve(usize),
    /// Published: hollow marks in the n-th colour and shape, without a line.
    Published(usize),
    /// A limit: a thin grey line without marks.
    Limit,
    /// Separate marks without a line, in the n-th colour and shape.
    Marks(usize),
}

impl Default for Look {
    fn default() -> Self {
        Self::Curve(0)
    }
}

/// The shape of a mark.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    TriangleDown,
}

/// Colour, shape and dashes (drawn, skipped; in pixels) that belong together.
pub(super) struct Style {
    pub(super) colour: RGBColor,
    pub(super) shape: Shape,
    pub(super) dash: Option<(u32, u32)>,
}

/// The n-th style. Colours: M. Okabe, K. Ito, Color Universal Design, 2008; ordered so that neighbours differ in
/// brightness.
pub(super) fn style(number: usize) -> Style {
    let (colour, shape, dash) = match number % 7 {
        0 => (RGBColor(0, 0, 0), Shape::Circle, None),
        1 => (RGBColor(213, 94, 0), Shape::Square, Some((20, 8))),
        2 => (RGBColor(0, 114, 178), Shape::Triangle, Some((6, 6))),
        3 => (RGBColor(230, 159, 0), Shape::Diamond, Some((26, 16))),
        4 => (RGBColor(0, 158, 115), Shape::Cross, Some((12, 14))),
        5 => (RGBColor(204, 121, 167), Shape::TriangleDown, Some((4, 14))),
        _ => (RGBColor(86, 180, 233), Shape::Circle, Some((10, 4))),
    };
    Style { colour, shape, dash }
}
