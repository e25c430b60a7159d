#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nfsw_fuzz::run("share", data));
