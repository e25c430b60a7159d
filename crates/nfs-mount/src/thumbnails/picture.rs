//! The picture that a camera has put into the Exif metadata of a photo.

use std::io::Cursor;

use anyhow::{Context, ensure};
use exif::{In, Tag};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

/// Bytes of an embedded picture: those of the APP1 segment that it lies in (Exif 2.32 §4.5.4).
const LARGEST_BYTES: usize = 64 << 10;

/// Longest side of an embedded picture. Cameras write 160 x 120.
const LONGEST_SIDE: usize = 1024;

/// Pointers to further directories: Exif, GPS and interoperability (Exif 2.32 §4.6.3).
const POINTERS: [u16; 3] = [0x8769, 0x8825, 0xa005];

/// Places that look like such pointers, at most. There are three, and one by chance for every 11 KiB.
const MOST_POINTERS: usize = 64;

/// Red, green and blue of each pixel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Returns the Exif thumbnail that is in the head of a photo, upright.
    ///
    /// # Errors
    /// If there is none, or what is there is damaged or larger than cameras make it.
    pub(crate) fn embedded(head: &[u8]) -> anyhow::Result<Self> {
        // All directories that pointers lead to are read: where many overlap, that takes memory with the square of their number.
        let is_pointer = |pair: &&[u8]| {
            POINTERS.iter().any(|tag| **pair == tag.to_be_bytes() || **pair == tag.to_le_bytes())
        };
        ensure!(head.windows(2).filter(is_pointer).count() <= MOST_POINTERS, "too many directories");
        let exif = exif::Reader::new()
            .continue_on_error(true)
            .read_from_container(&mut Cursor::new(head))
            // Maker notes are often damaged; what is needed here may be whole.
            .or_else(|error| error.distill_partial_result(|_| ()))?;
        let number = |tag, directory| exif.get_field(tag, directory)?.value.get_uint(0);
        let start = number(Tag::JPEGInterchangeFormat, In::THUMBNAIL).context("it has none")?;
        let length = number(Tag::JPEGInterchangeFormatLength, In::THUMBNAIL).context("it has none")?;
        let (start, length) = (usize::try_from(start)?, usize::try_from(length)?);
        ensure!(length <= LARGEST_BYTES, "{length} bytes are too many");
        let jpeg = exif.buf().get(start..).and_then(|rest| rest.get(..length)).context("it is cut off")?;
        let orientation = number(Tag::Orientation, In::PRIMARY).unwrap_or(1);
        Ok(Self::decode(jpeg)?.upright(orientation))
    }

    fn decode(jpeg: &[u8]) -> anyhow::Result<Self> {
        let options = DecoderOptions::new_safe()
            .set_max_width(LONGEST_SIDE)
            .set_max_height(LONGEST_SIDE)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(jpeg), options);
        let bytes = decoder.decode()?;
        let (width, height) = decoder.dimensions().context("it has no size")?;
        let (pixels, rest) = bytes.as_chunks();
        ensure!(pixels.len() == width * height && rest.is_empty(), "not red, green and blue");
        ensure!(!pixels.is_empty(), "it is empty");
        Ok(Self { width, height, pixels: pixels.to_vec() })
    }

    /// Turns and mirrors what was taken with an orientation (Exif 2.32 §4.6.4, tag 274).
    fn upright(&self, orientation: u32) -> Self {
        let (right, bottom) = (self.width - 1, self.height - 1);
        let (width, height) = match orientation {
            5..=8 => (self.height, self.width),
            _ => (self.width, self.height),
        };
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let pixels = places.map(|(x, y)| {
            let (x, y) = match orientation {
                2 => (right - x, y),
                3 => (right - x, bottom - y),
                4 => (x, bottom - y),
                5 => (y, x),
                6 => (y, bottom - x),
                7 => (right - y, bottom - x),
                8 => (right - y, x),
                _ => (x, y),
            };
            self.pixels[y * self.width + x]
        });
        Self { width, height, pixels: pixels.collect() }
    }

    /// Makes it small enough: each pixel is the mean of the area that it covers.
    pub(crate) fn at_most(self, side: usize) -> Self {
        let longest = self.width.max(self.height);
        if longest <= side {
            return self;
        }
        let scaled = |length: usize| ((length * side + longest / 2) / longest).max(1);
        let (width, height) = (scaled(self.width), scaled(self.height));
        let mut pixels = Vec::with_capacity(width * height);
        for y in 0..height {
            for x in 0..width {
                let mut sums = [0; 3];
                for (row, high) in covered(y, self.height, height) {
                    for (column, wide) in covered(x, self.width, width) {
                        let pixel = self.pixels[row * self.width + column];
                        for (sum, part) in sums.iter_mut().zip(pixel) {
                            *sum += usize::from(part) * high * wide;
                        }
                    }
                }
                let area = self.width * self.height;
                pixels.push(sums.map(|sum| ((sum + area / 2) / area) as u8));
            }
        }
        Self { width, height, pixels }
    }
}

/// Returns which of `from` pixels the one at `place` of `to` pixels covers, each with the part of it in units of `1 / to`: `from` of them
/// together.
fn covered(place: usize, from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    let (start, end) = (place * from, (place + 1) * from);
    (start / to..end.div_ceil(to)).map(move |at| (at, end.min((at + 1) * to) - start.max(at * to)))
}
