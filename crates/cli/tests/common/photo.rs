//! Photos as cameras write them: a JPEG whose Exif metadata has a smaller one.

#![allow(dead_code, reason = "every test program uses its own part")]

/// Pixels on each side of a block that has one shade.
pub(crate) const BLOCK: usize = 8;

/// A grey baseline JPEG (ITU-T T.81); `shade` says how bright the block in a column and row is.
pub(crate) fn jpeg(width: u16, height: u16, shade: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    let mut jpeg = vec![0xff, 0xd8];
    let segment = |jpeg: &mut Vec<u8>, marker: u8, body: &[u8]| {
        jpeg.extend([0xff, marker]);
        jpeg.extend((body.len() as u16 + 2).to_be_bytes());
        jpeg.extend(body);
    };
    // A step of 8 is one shade for the whole block.
    segment(&mut jpeg, 0xdb, &[&[0][..], &[8; 64]].concat());
    let ([high, low], [wide, narrow]) = (height.to_be_bytes(), width.to_be_bytes());
    segment(&mut jpeg, 0xc0, &[8, high, low, wide, narrow, 1, 1, 0x11, 0]);
    // Of differences, the lengths in bits 0 to 8 have codes of four bits; the end of a block has one of one bit.
    segment(&mut jpeg, 0xc4, &[0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    segment(&mut jpeg, 0xc4, &[0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    segment(&mut jpeg, 0xda, &[1, 1, 0, 0, 63, 0]);
    let mut bits = Vec::new();
    let mut put = |value: u32, count: u32| bits.extend((0..count).rev().map(|at| value >> at & 1));
    let mut before = 128;
    for row in 0..usize::from(height).div_ceil(BLOCK) {
        for column in 0..usize::from(width).div_ceil(BLOCK) {
            let shade = i32::from(shade(column, row));
            let difference = shade - before;
            let length = 32 - difference.unsigned_abs().leading_zeros();
            put(length, 4);
            let below = if difference < 0 { (1 << length) - 1 } else { 0 };
            put((difference + below) as u32, length);
            put(0, 1);
            before = shade;
        }
    }
    bits.resize(bits.len().next_multiple_of(8), 1);
    for byte in bits.chunks(8) {
        let byte = byte.iter().fold(0, |byte, bit| byte << 1 | *bit as u8);
        jpeg.push(byte);
        if byte == 0xff {
            jpeg.push(0);
        }
    }
    jpeg.extend([0xff, 0xd9]);
    jpeg
}

/// Exif metadata of a photo that was taken with an orientation, with a thumbnail of so many bytes as it says.
fn exif(thumbnail: &[u8], length: u32, orientation: u16) -> Vec<u8> {
    let entry = |tag: u16, kind: u16, value: u32| {
        let fields = [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &1u32.to_le_bytes(), &value.to_le_bytes()];
        fields.concat()
    };
    let (short, long) = (3, 4);
    // The header, two directories of one and two entries, the thumbnail.
    let parts = [
        &b"Exif\0\0"[..],
        b"II*\0\x08\0\0\0",
        &[1, 0],
        &entry(0x0112, short, orientation.into()),
        &26u32.to_le_bytes(),
        &[2, 0],
        &entry(0x0201, long, 56),
        &entry(0x0202, long, length),
        &[0; 4],
        thumbnail,
    ];
    parts.concat()
}

/// The head of a photo that was taken with an orientation, with a thumbnail of so many bytes as it says.
pub(crate) fn photo_of(thumbnail: &[u8], length: u32, orientation: u16) -> Vec<u8> {
    let body = exif(thumbnail, length, orientation);
    [&[0xff, 0xd8, 0xff, 0xe1][..], &(body.len() as u16 + 2).to_be_bytes(), &body].concat()
}

/// The head of a photo with a thumbnail.
pub(crate) fn photo(thumbnail: &[u8], orientation: u16) -> Vec<u8> {
    photo_of(thumbnail, thumbnail.len() as u32, orientation)
}

/// The head of a photo in HEIF (ISO/IEC 23008-12), as telephones write them.
pub(crate) fn heic(thumbnail: &[u8], orientation: u16) -> Vec<u8> {
    let boxed =
        |kind: &[u8; 4], body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat();
    // The metadata begins with how far off its TIFF header is (annex A.2.1).
    let item = [&6u32.to_be_bytes()[..], &exif(thumbnail, thumbnail.len() as u32, orientation)].concat();
    let brands = boxed(b"ftyp", b"heic\0\0\0\0mif1heic");
    let meta = |offset: u32| {
        let entry = boxed(b"infe", &[&[2, 0, 0, 0, 0, 1, 0, 0][..], b"Exif\0"].concat());
        let entries = boxed(b"iinf", &[&[0, 0, 0, 0, 0, 1][..], &entry].concat());
        // One item, number 1, of one extent; offset and length have four bytes, the base offset none.
        let place = [offset.to_be_bytes(), (item.len() as u32).to_be_bytes()].concat();
        let places = boxed(b"iloc", &[&[0, 0, 0, 0, 0x44, 0, 0, 1, 0, 1, 0, 0, 0, 1][..], &place].concat());
        boxed(b"meta", &[&[0; 4][..], &entries, &places].concat())
    };
    // After the header of the box that holds it.
    let offset = brands.len() + meta(0).len() + 8;
    [brands, meta(offset as u32), boxed(b"mdat", &item)].concat()
}
