use super::*;
use crate::attr::SetTime;

#[test]
fn a_late_copy_of_the_only_write_must_not_touch_a_time_that_was_set() {
    let first = |size, mtime| {
        let file = FileHandle::try_from(&nfs_fh3 { data: Opaque::owned(vec![7; 8]) }).unwrap();
        let attributes = SetAttributes { mtime, ..SetAttributes::default() };
        let placement = Placement::Existing(file);
        let mut upload = Upload::new(UploadSpec {
            directory: file,
            name: Vec::new(),
            placement,
            size,
            mode: 0o644,
            attributes,
        });
        let limits = Limits { read_block: 4096, write_block: 4096, sync_tail: 0 };
        upload.next_call(limits, &|_, _| true).unwrap().repeat
    };
    assert_eq!(first(4096, Some(SetTime::ServerTime)), Repeat::SameXid);
    assert_eq!(first(4096, None), Repeat::Idempotent);
    assert_eq!(first(8192, Some(SetTime::ServerTime)), Repeat::Idempotent, "a COMMIT comes between");
}
