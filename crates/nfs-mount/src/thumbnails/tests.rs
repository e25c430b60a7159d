//! Thumbnails of photos that the tests make.

#[path = "../../../cli/tests/common/photo.rs"]
mod photo;

use std::{
    fs::{self, File},
    io::BufReader,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use tempfile::tempdir;

use self::photo::{BLOCK, heic, jpeg, photo, photo_of};
use super::*;

const PATH: &str = "/home/u/photos/2026/a cat.jpg";

fn head(data: Vec<u8>, changed: u32) -> Head {
    Head { path: b"2026/a cat.jpg".to_vec(), changed, size: 4_000_000, data: data.into() }
}

/// Width, height, texts and first byte of a thumbnail.
fn read(path: &Path) -> ((u32, u32), Vec<(String, String)>, u8) {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let info = reader.info();
    let texts = info.uncompressed_latin1_text.iter().map(|it| (it.keyword.clone(), it.text.clone()));
    ((info.width, info.height), texts.collect(), pixels[0])
}

#[test]
fn uris_are_those_of_glib() {
    let all: Vec<u8> = [b'/'].into_iter().chain(1..=255).collect();
    // What g_filename_to_uri of GLib 2.74 returns for it.
    let rest: String = (0x7f..=0xff_u8).map(|byte| format!("%{byte:02X}")).collect();
    let control: String = (1..=0x20_u8).map(|byte| format!("%{byte:02X}")).collect();
    let expected = format!(
        "file:///{control}!%22%23$%25&'()*+,-./0123456789:%3B%3C=%3E%3F@ABCDEFGHIJKLMNOPQRSTUVWXYZ\
         %5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D~{rest}"
    );
    assert_eq!(uri(Path::new(OsStr::from_bytes(&all))), expected);
    // The example of the standard.
    let name = file(Path::new("/t"), &uri(Path::new("/home/jens/photos/me.png")));
    assert_eq!(name, Path::new("/t/c6ee772d9e49320e97ec29a7eb5b1697.png"));
}

#[test]
fn a_photo_has_its_thumbnail_where_file_managers_look() {
    let home = tempdir().unwrap();
    let place = home.path().join("thumbnails/normal");
    let data = photo(&jpeg(160, 120, |_, _| 77), 6);
    write(&place, Path::new(PATH), &head(data, 1_700_000_000)).unwrap();
    let path = file(&place, "file:///home/u/photos/2026/a%20cat.jpg");
    let (size, texts, shade) = read(&path);
    assert_eq!((size, shade), ((96, 128), 77), "turned, and made smaller");
    let texts: Vec<_> = texts.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    let expected = [
        ("Thumb::URI", "file:///home/u/photos/2026/a%20cat.jpg"),
        ("Thumb::MTime", "1700000000"),
        ("Thumb::Size", "4000000"),
        ("Software", "nfsw"),
    ];
    assert_eq!(texts, expected);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&place), mode(place.parent().unwrap())), (0o600, 0o700, 0o700));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_thumbnail_of_the_same_version_is_kept_and_one_of_another_is_replaced() {
    let home = tempdir().unwrap();
    let place = home.path().join("normal");
    let path = file(&place, &uri(Path::new(PATH)));
    let write = |shade, changed| {
        write(&place, Path::new(PATH), &head(photo(&jpeg(16, 16, |_, _| shade), 1), changed)).unwrap();
        read(&path).2
    };
    assert_eq!(write(10, 5), 10);
    assert_eq!(write(20, 5), 10, "as a better one of another program would be");
    assert_eq!(write(20, 6), 20);
    fs::write(&path, "damaged").unwrap();
    assert_eq!(write(30, 6), 30);
}

#[test]
fn pictures_are_turned_as_the_camera_was_held() {
    let shades = |column, row| (row * 3 + column) as u8 * 40;
    let data = jpeg(24, 16, shades);
    let containers = [photo as fn(&[u8], u16) -> Vec<u8>, heic];
    // Rows of letters, the first of which is A in a picture that was not turned.
    let expected =
        ["ABC DEF", "CBA FED", "FED CBA", "DEF ABC", "AD BE CF", "DA EB FC", "FC EB DA", "CF BE AD"];
    for (orientation, expected) in (1..).zip(expected).chain([(0, expected[0]), (9, expected[0])]) {
        for container in containers {
            let picture = Picture::embedded(&container(&data, orientation)).unwrap();
            let rows = picture.pixels.chunks(picture.width).step_by(BLOCK);
            let letter = |pixel: &[u8; 3]| char::from(b'A' + pixel[0] / 40);
            let row = |row: &[[u8; 3]]| row.iter().step_by(BLOCK).map(letter).collect::<String>();
            assert_eq!(rows.map(row).collect::<Vec<_>>().join(" "), expected, "{orientation}");
        }
    }
}

#[test]
fn smaller_pictures_have_the_means_of_larger_ones() {
    let picture = |width, height, shade: fn(usize) -> u8| Picture {
        width,
        height,
        pixels: (0..width * height).map(|at| [shade(at), 0, 255]).collect(),
    };
    let small = picture(5, 2, |at| (at % 5) as u8 * 10).at_most(2);
    // Of 0, 10 and half of 20; of the other half, 30 and 40.
    assert_eq!((small.width, small.height), (2, 1));
    assert_eq!(small.pixels, [[8, 0, 255], [32, 0, 255]]);
    let thin = picture(1024, 1, |_| 200).at_most(128);
    assert_eq!((thin.width, thin.height, thin.pixels[127]), (128, 1, [200, 0, 255]));
    let same = picture(128, 96, |at| at as u8);
    assert_eq!(same.clone().at_most(128), same);
}

#[test]
fn what_is_no_photo_or_a_hostile_one_has_no_thumbnail() {
    let fails = |data: &[u8], why: &str| {
        let error = format!("{:#}", Picture::embedded(data).unwrap_err());
        assert!(error.contains(why), "{error}, not {why}");
    };
    let small = jpeg(16, 16, |_, _| 1);
    for whole in [photo(&small, 1), heic(&small, 1)] {
        assert!(Picture::embedded(&whole).is_ok());
        for end in 0..whole.len() {
            assert!(Picture::embedded(&whole[..end]).is_err(), "cut off after {end} bytes");
        }
    }
    fails(&small, "");
    fails(&photo_of(&small, small.len() as u32 + 1, 1), "cut off");
    fails(&photo_of(&small, u32::MAX, 1), "too many");
    fails(&photo_of(&small, 65_537, 1), "too many");
    fails(&photo(&[], 1), "");
    fails(&photo(b"no picture", 1), "");
    for (width, height) in [(1025, 8), (8, 1025), (65_535, 65_535), (0, 8), (8, 0)] {
        let mut large = small.clone();
        let size = large.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap() + 5;
        large[size..size + 4].copy_from_slice(&[u16::to_be_bytes(height), u16::to_be_bytes(width)].concat());
        fails(&photo(&large, 1), "");
    }
    // A directory of pointers to directories.
    let pointer = [0x69, 0x87, 4, 0, 1, 0, 0, 0, 8, 0, 0, 0];
    let tiff = [&b"II*\0\x08\0\0\0"[..], &2700u16.to_le_bytes(), &pointer.repeat(2700)].concat();
    fails(&tiff, "directories");
}

#[test]
fn damaged_photos_cause_no_panic() {
    let picture = jpeg(160, 120, |column, row| (column * row) as u8);
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for whole in [photo(&picture, 6), heic(&picture, 6)] {
        let mut survived = 0;
        for _ in 0..2000 {
            let mut data = whole.clone();
            for _ in 0..=next(4) {
                // Most of what is not pixels is at the beginning.
                let within = if next(2) == 0 { data.len() } else { 300 };
                data[next(within)] = next(256) as u8;
            }
            survived += usize::from(Picture::embedded(&data).is_ok());
        }
        assert!((100..1900).contains(&survived), "{survived}");
    }
}

#[test]
fn the_thread_writes_what_is_offered_and_nobody_waits_for_it() {
    let home = tempdir().unwrap();
    let place = home.path().to_owned();
    let (sender, heads) = sync_channel(QUEUED);
    let thumbnails = Thumbnails(sender);
    for changed in 0..2 * QUEUED as u32 {
        thumbnails.offer(head(photo(&jpeg(8, 8, |_, _| 9), 1), changed));
    }
    let point = Path::new("/home/u/photos");
    let thread = {
        let place = place.clone();
        thread::spawn(move || write_all(&place, point, &heads))
    };
    drop(thumbnails);
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
    let (_, texts, _) = read(&file(&place, &uri(Path::new(PATH))));
    assert_eq!(texts[1].1, (QUEUED - 1).to_string(), "what is too much is left out");
}
