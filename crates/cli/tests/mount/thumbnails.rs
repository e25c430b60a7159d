//! Thumbnails of photos that `nfsw mount --prefetch` writes, through the kernel. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs::{self, File},
    io::BufReader,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::Duration,
};

use crate::common::{Server, names, noise, until};
use crate::{
    mounted::{Mount, age, state},
    photo,
};
use md5::{Digest, Md5};

/// The thumbnail of a file as another program finds it: its texts.
fn thumbnail(home: &Path, path: &Path) -> Option<Vec<(String, String)>> {
    let uri = format!("file://{}", path.to_str().unwrap().replace(' ', "%20"));
    let name = format!("{:x}.png", Md5::digest(uri));
    let file = File::open(home.join("thumbnails/normal").join(name)).ok()?;
    let reader = png::Decoder::new(BufReader::new(file)).read_info().unwrap();
    assert_eq!((reader.info().width, reader.info().height), (128, 96));
    let texts = reader.info().uncompressed_latin1_text.iter();
    Some(texts.map(|it| (it.keyword.clone(), it.text.clone())).collect())
}

#[test]
fn photos_of_a_directory_that_was_listed_have_thumbnails_though_nobody_read_them() {
    let server = Server::start();
    fs::create_dir_all(server.path("/album/day 1")).unwrap();
    let picture = photo::jpeg(160, 120, |_, _| 50);
    let photos =
        [("album/day 1/a cat.jpg", photo::photo(&picture, 1)), ("other.HEIC", photo::heic(&picture, 1))];
    for (name, head) in photos {
        fs::write(server.path("/").join(name), [&head[..], &noise(2 << 20)].concat()).unwrap();
        age(&server.path("/").join(name));
    }
    let home = tempfile::tempdir().unwrap();
    let variables = [("XDG_CACHE_HOME", home.path())];
    let mount = Mount::with(&server.url("/"), &["--prefetch"], &variables);
    let photo = mount.path("album/day 1/a cat.jpg");
    assert_eq!(names(&mount.path("album/day 1")), ["a cat.jpg"]);
    until("its thumbnail is there", || thumbnail(home.path(), &photo).is_some());
    let texts = thumbnail(home.path(), &photo).unwrap();
    let metadata = fs::metadata(&photo).unwrap();
    let text = |key: &str| texts.iter().find(|text| text.0 == key).unwrap().1.as_str();
    assert_eq!(text("Thumb::MTime"), metadata.mtime().to_string());
    assert_eq!(text("Thumb::Size"), metadata.len().to_string());
    assert_eq!(state(&photo), "fresh, partial 3 %", "the head alone was read");
    // Its directory was not listed.
    let other = mount.path("other.HEIC");
    assert_eq!(thumbnail(home.path(), &other), None);
    fs::read(&other).unwrap();
    until("the thumbnail of what was read is there", || thumbnail(home.path(), &other).is_some());
}

#[test]
fn without_prefetch_there_are_none() {
    let server = Server::start();
    fs::write(server.path("/cat.jpg"), photo::photo(&photo::jpeg(160, 120, |_, _| 50), 1)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mount = Mount::with(&server.url("/"), &[], &[("XDG_CACHE_HOME", home.path())]);
    assert_eq!(names(&mount.path), ["cat.jpg"]);
    fs::read(mount.path("cat.jpg")).unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(!home.path().join("thumbnails").exists());
}
