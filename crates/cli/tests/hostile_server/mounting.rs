//! MOUNT and the port mapper.

use super::*;

misbehaviours! {
    a_list_of_exports_refused_without_versions: FILE_TCP, Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 2]) }), BeRight;
    a_list_of_exports_refused_without_versions_over_udp: FILE, Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 2]) }), BeRight;
    a_list_of_exports_that_nobody_offers: FILE_TCP, Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 1]) }), BeRight;
    a_list_of_exports_that_is_asked_for: &["exports", "--timeout", "1s", "{tree}"],
        Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 2]) }), Say(3, "the server rejects EXPORT");
    a_list_of_exports_that_is_not_xdr: FILE_TCP, Reply(|c, r| mount(c, 5, r, &[9, 9, 9])), BeRight;
    a_root_without_flavours: FILE, Reply(|c, r| if is_mount(c, 1) { r.truncate(r.len() - 12) }), BeRight;
    words_after_the_root: FILE, Reply(|c, r| if is_mount(c, 1) { r.extend_from_slice(&[7; 8]) }), BeRight;
    words_after_all_results: TREE_TCP, Reply(|_, r| r.extend_from_slice(&[7; 4])), BeRight;
    words_after_all_results_of_an_upload: UPLOAD_PATIENT, Reply(|_, r| r.extend_from_slice(&[7; 4])), BeRight;
    words_after_what_df_shows: &["df", "--timeout", "1s", "{tree}"], Reply(|_, r| r.extend_from_slice(&[7; 4])), Say(0, "");
    a_root_handle_of_65_bytes: FILE, Reply(|c, r| mount(c, 1, r, &[0, 65])), Say(3, "MNT");
    a_root_with_4_billion_flavours: FILE, Reply(|c, r| mount(c, 1, r, &[0, 4, 0, u32::MAX])), Say(3, "MNT");
    a_mount_status_nobody_knows: FILE, Reply(|c, r| mount(c, 1, r, &[4711])), Say(3, "4711");
    a_root_that_is_no_handle_of_its_own: FILE, Reply(|c, r| mount(c, 1, r, &[0, 8, 1, 2, 0])), Say(1, "does not know this file handle");
    an_export_list_that_is_cut: &["exports", "--timeout", "1s", "{tree}"], Reply(|c, r| mount(c, 5, r, &[1, 4, 0x2f61_6263, 1])), Say(3, "EXPORT");
    an_export_of_4_gib: &["exports", "--timeout", "1s", "{tree}"], Reply(|c, r| mount(c, 5, r, &[1, u32::MAX])), Say(3, "EXPORT");
    an_export_list_that_is_cut_before_a_copy: FILE, Reply(|c, r| mount(c, 5, r, &[1, u32::MAX])), BeRight;
    a_mount_service_that_refuses: FILE, Reply(|c, r| if c.program == Program::MOUNT { message(r, &[1, 0, 0, 0, 1]) }), Say(3, "MOUNT");
}
