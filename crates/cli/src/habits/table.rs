//! What is typed, and what to use instead.

/// Commands, options that they do not have, and a sentence.
pub(super) const OPTIONS: &[(&[&str], &[&str], &str)] = &[
    // ssh
    (
        &["cp", "sync"],
        &["-e", "--rsh", "--rsync-path", "-J", "--password-file"],
        "nfsw talks to the NFS service itself, without ssh. Leave the option out; --uid and --gid say who you are.",
    ),
    (
        &["cp"],
        &["-F", "-o"],
        "nfsw talks to the NFS service itself, without ssh. Leave the option out; --uid and --gid say who you are.",
    ),
    (
        &["cp"],
        &["-i", "--interactive"],
        "nfsw neither asks nor takes a key. -n leaves files that exist alone, -u replaces only older ones, \
         and --dry-run shows what would be copied.",
    ),
    (
        &["cp"],
        &["-l", "--link", "-s", "--symbolic-link"],
        "links are made with nfsw ln; a limit as with scp -l is --bwlimit (scp -l 8000 is --bwlimit 8000kbit).",
    ),
    (
        &["cp", "sync"],
        &[
            "-M",
            "--remote-option",
            "--protocol",
            "--address",
            "--sockopts",
            "--blocking-io",
            "--trust-sender",
            "--early-input",
            "--copy-as",
            "--no-motd",
        ],
        "leave it out: nfsw talks to the NFS service itself, there is no rsync on the server.",
    ),
    (&["cp", "sync"], &["-V"], "nfsw itself says its version (nfsw --version)."),
    (&["cp", "sync"], &["--daemon"], "nfsw serve DIR serves a directory."),
    (&["cp", "sync"], &["--port"], "the port is part of the name: nfs://HOST:PORT/PATH."),
    (&["cp"], &["-3"], "not needed: two servers may be named, and the data passes through this machine."),
    // cp
    (
        &["cp"],
        &["-t", "--target-directory"],
        "the directory comes last: nfsw cp SRC... DIR. Times (rsync -t) are kept with -p.",
    ),
    (
        &["cp"],
        &["--preserve", "--times", "--perms", "--owner", "--group"],
        "is -p here, without a list: it keeps modes and times, and owners where allowed.",
    ),
    (&["cp"], &["--update"], "takes no value here: --update replaces what is older, --no-clobber nothing."),
    (&["cp"], &["-S"], "zeros become holes with --sparse always; nfsw keeps no earlier versions (cp -b -S)."),
    (
        &["cp"],
        &["-d", "--no-preserve", "--attributes-only", "--copy-contents", "-Z", "--context"],
        "not available. -P copies links as links, and -p keeps modes and times; without -p neither is kept.",
    ),
    (
        &["cp"],
        &["--parents", "--relative", "--no-implied-dirs"],
        "not available: nfsw mkdir -p makes the directories, then copy into the last one.",
    ),
    (&["cp"], &["--reflink"], "not available: NFSv3 cannot share blocks between files."),
    (&["cp"], &["--remove-destination"], "not needed: a copy replaces a file only when it is complete."),
    (
        &["cp"],
        &["--strip-trailing-slashes"],
        "not available: SRC/ follows a symbolic link to a directory. Leave the slash out.",
    ),
    (
        &["cp"],
        &["--delete", "--delete-after", "--delete-before", "--delete-during", "--delete-delay", "--del"],
        "cp never deletes. nfsw sync --delete does.",
    ),
    (
        &["cp"],
        &["--checksum", "-c", "--size-only", "--ignore-times"],
        "for nfsw sync; nfsw cp copies every file that is named.",
    ),
    (&["cp"], &["--itemize-changes"], "-v names each file that is copied; nfsw sync -i also says why."),
    (&["cp"], &["--ignore-existing"], "is --no-clobber (-n) here."),
    (
        &["cp"],
        &["--links", "--copy-links"],
        "with -r links are copied as links; -L copies what they point to.",
    ),
    // rsync
    (
        &["sync"],
        &["--delete-before", "--delete-during", "--del"],
        "nfsw deletes only after everything is copied: --delete.",
    ),
    (&["sync"], &["--delete-excluded"], "what --exclude leaves out is never deleted. nfsw rm removes it."),
    (
        &["cp", "sync"],
        &["-b", "--backup", "--backup-dir", "--suffix", "--link-dest", "--compare-dest", "--copy-dest"],
        "nfsw keeps no earlier versions. Copy into another directory for each of them.",
    ),
    (&["sync"], &["-I", "--ignore-times"], "--checksum compares the bytes of files of the same size."),
    (
        &["cp", "sync"],
        &["--existing", "--ignore-non-existing"],
        "not available: --files-from says which files are taken.",
    ),
    (
        &["cp", "sync"],
        &["--remove-source-files", "--remove-sent-files"],
        "nfsw never deletes a source. Remove it after exit status 0, which means on stable storage.",
    ),
    (
        &["cp", "sync"],
        &[
            "--resume",
            "--continue",
            "--append",
            "--append-verify",
            "--partial-dir",
            "-y",
            "--fuzzy",
            "--no-whole-file",
            "-B",
        ],
        "not needed: the same command, run again, resumes what was interrupted, and files that changed are copied whole.",
    ),
    (
        &["sync"],
        &["--inplace"],
        "nfsw cp -r --inplace writes into the files themselves; it is never resumed.",
    ),
    (&["sync"], &["-R", "--relative"], "not available: name the directory below DST that SRC is to become."),
    (&["sync"], &["-C", "--cvs-exclude"], "--gitignore leaves out what the .gitignore files in SRC say."),
    (
        &["cp", "sync"],
        &["--filter", "--include-from"],
        "--exclude and --include take the same patterns; the first that matches decides.",
    ),
    (&["sync"], &["-f"], "--exclude and --include take the same patterns; the first that matches decides."),
    (&["sync"], &["-F"], "--gitignore leaves out what the .gitignore files in SRC say."),
    (
        &["cp", "sync"],
        &["-A", "-X", "--acls", "--xattrs", "-N", "-U"],
        "NFSv3 has neither ACLs nor extended attributes.",
    ),
    (&["cp", "sync"], &["-m", "--prune-empty-dirs"], "not available: empty directories are copied, too."),
    (
        &["cp", "sync"],
        &["--max-size", "--min-size"],
        "not available: --files-from takes a list of files, such as find prints.",
    ),
    (
        &["cp", "sync"],
        &[
            "--chmod",
            "--chown",
            "--usermap",
            "--groupmap",
            "--no-perms",
            "--no-owner",
            "--no-group",
            "--no-times",
            "--no-o",
            "--no-g",
            "--no-p",
            "--no-t",
        ],
        "not available. nfsw cp -r keeps modes, times and owners only with -p; nfsw chmod changes modes later.",
    ),
    (
        &["sync"],
        &["-T", "--temp-dir"],
        "not available: a file is written beside its target, as .NAME.nfsw-part, and renamed.",
    ),
    (
        &["cp"],
        &["--temp-dir"],
        "not available: a file is written beside its target, as .NAME.nfsw-part, and renamed.",
    ),
    (
        &["cp", "sync"],
        &["--list-only"],
        "--dry-run shows what would be copied; nfsw ls -lR lists a directory.",
    ),
    (
        &["cp", "sync"],
        &["--no-links", "--no-l", "--safe-links", "--copy-unsafe-links", "--munge-links"],
        "not available: links are copied as they are. --exclude leaves some out, -L copies what they point to.",
    ),
    (
        &["cp", "sync"],
        &["-k", "--copy-dirlinks", "-K", "--keep-dirlinks"],
        "not available: -L copies what links point to. Links at the target are replaced, never followed.",
    ),
    (
        &["cp", "sync"],
        &["--delay-updates"],
        "not needed: each file gets its name only when it is complete. Names of several files cannot change at once.",
    ),
    (
        &["cp", "sync"],
        &["--compress-level", "--compress-choice", "--skip-compress", "--zc", "--zl"],
        "leave it out: NFS has no compression.",
    ),
    (&["sync"], &["-@", "--modify-window"], "not needed: times are compared at the resolution of DST."),
    (&["sync"], &["--ignore-errors"], "not available: nothing is deleted when anything failed."),
    (
        &["sync"],
        &["-O", "--omit-dir-times", "--omit-link-times"],
        "not available: a sync keeps all times. nfsw cp -r without -p keeps none.",
    ),
    (
        &["cp"],
        &["-O", "--omit-dir-times", "--omit-link-times"],
        "leave it out: without -p no times are kept; nfsw does not speak the protocol of scp (scp -O).",
    ),
    (
        &["sync"],
        &["-d", "--dirs"],
        "not available: a sync always includes subdirectories; --exclude leaves some out.",
    ),
    (&["cp", "sync"], &["-0", "--from0"], "not available: --files-from takes one name per line."),
    (&["cp", "sync"], &["--fsync"], "not needed on a server: exit status 0 means on stable storage."),
    (
        &["cp", "sync"],
        &["--preallocate"],
        "not available: a full disk ends the copy with status 7, and the same command resumes it.",
    ),
    (
        &["cp", "sync"],
        &["--devices", "--specials", "--write-devices", "--copy-devices", "--super", "--fake-super"],
        "not available: nfsw copies files, directories and links, not devices.",
    ),
    (&["cp"], &["-D"], "not available: nfsw copies files, directories and links, not devices."),
    (
        &["cp", "sync"],
        &["--atimes", "--open-noatime", "--crtimes"],
        "not available: the time of the last change is kept, NFSv3 has no time of birth.",
    ),
    (
        &["cp", "sync"],
        &["-8", "--8-bit-output", "--iconv", "--protect-args", "--secluded-args", "--old-args"],
        "not needed: names are copied byte by byte, and no remote shell sees them.",
    ),
    (&["sync"], &["-s"], "not needed: names are copied byte by byte, and no remote shell sees them."),
    (&["cp", "sync"], &["--mkpath"], "nfsw mkdir -p makes the directories first."),
    (
        &["cp", "sync"],
        &["--contimeout", "--stop-after", "--stop-at", "--time-limit"],
        "--timeout limits the time without progress, --deadline the whole run.",
    ),
    (
        &["cp", "sync"],
        &["--out-format", "--log-file-format"],
        "not available: --json prints every event with all its fields.",
    ),
    (&["cp", "sync"], &["--debug"], "-v says what is done and why, --stats counts calls."),
    (
        &["cp", "sync"],
        &["--checksum-choice", "--cc", "--checksum-seed"],
        "not available: --verify compares BLAKE3 hashes.",
    ),
    (
        &["cp", "sync"],
        &["--ignore-missing-args", "--delete-missing-args"],
        "not available: a source that does not exist is an error (status 4), and nothing is deleted for it.",
    ),
    (
        &["cp", "sync"],
        &["--write-batch", "--only-write-batch", "--read-batch"],
        "not available: nfsw has no batch files.",
    ),
    (
        &["cp", "sync"],
        &["--outbuf", "--msgs2stderr", "--stderr", "--max-alloc"],
        "leave it out: lines are written at once, messages on standard error, and memory is limited anyway.",
    ),
    (&["cp", "sync"], &["--user"], "NFS knows users by number: --uid and --gid."),
    (
        &["cp", "sync"],
        &["-4", "-6", "--ipv4", "--ipv6"],
        "not available: an address in the place of HOST selects IPv4 or IPv6.",
    ),
    (&["sync"], &["-E", "--executability"], "not needed: a sync keeps all modes."),
    (&["cp", "sync"], &["--no-progress"], "is --quiet (-q) here."),
    // rclone, curl, wget
    (&["cp", "sync"], &["--transfers", "--checkers", "--parallel", "--threads"], "is --jobs (-j) here."),
    (&["cp", "sync"], &["--rate", "--limit-rate"], "is --bwlimit here."),
    // mount
    (&["mount"], &["-t", "--types"], "leave it out: nfsw mounts NFSv3 only."),
    (&["mount"], &["-r", "--ro", "--read-only"], "not needed: nfsw mounts read-only."),
    (&["mount"], &["-w", "--rw", "--read-write"], "nfsw mounts read-only. nfsw cp and nfsw sync write."),
    (
        &["umount"],
        &["-l", "--lazy", "-f", "--force"],
        "not needed: a mount of nfsw never waits for its server.",
    ),
    // ls, rm, df
    (&["ls"], &["-n", "--numeric-uid-gid"], "not needed: -l shows owners and groups as numbers."),
    (&["ls"], &["-F", "--classify"], "-l shows in its first letter what each name is."),
    (
        &["rm"],
        &["-i", "-I", "--interactive"],
        "nfsw does not ask. nfsw ls with the same pattern shows what it means.",
    ),
    (&["mv"], &["-f", "--force"], "not needed: what has the name is replaced, unless with -n."),
    (&["mv"], &["-i", "--interactive"], "nfsw does not ask. -n leaves files that exist alone."),
];

/// What is not a command, and a sentence.
pub(super) const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["copy", "scp", "get", "put", "fetch", "download", "upload", "copyto"],
        "nfsw cp copies files, with -r directories.",
    ),
    (&["rsync", "mirror", "backup"], "nfsw sync SRC DST makes the contents of DST those of SRC."),
    (&["showmount", "list"], "nfsw exports HOST lists what a server offers, nfsw ls HOST:/PATH a directory."),
    (&["discover", "browse", "shares", "receive"], "nfsw find lists what people nearby share."),
    (&["dir", "ll", "tree", "du"], "nfsw ls -l lists a directory, with -R all that is below it."),
    (&["delete", "del", "unlink", "rmdir", "purge"], "nfsw rm removes files, with -r directories."),
    (&["rename", "move"], "nfsw mv moves and renames."),
    (
        &["head", "tail", "less", "more"],
        "nfsw cat writes a file to standard output: nfsw cat nas:/PATH | less",
    ),
    (
        &["chown", "chgrp", "touch"],
        "There are nfsw chmod, and nfsw cp -p, which keeps times, and owners where allowed.",
    ),
    (
        &["nfsstat", "rpcinfo", "status", "check"],
        "nfsw doctor HOST:/PATH reports what a server does, nfsw ping HOST how the link is.",
    ),
    (&["unmount", "fusermount"], "nfsw umount DIR unmounts."),
    (
        &["netem", "emulate", "proxy", "exec"],
        "nfsw link emulates links: nfsw link exec -- COMMAND, nfsw link proxy.",
    ),
];

/// Options of `mount -o`, and what to do with them; `{}` is their value.
pub(super) const MOUNT_OPTIONS: &[(&[&str], &str)] = &[
    (
        &[
            "ro",
            "vers=3",
            "nfsvers=3",
            "v3",
            "soft",
            "softerr",
            "intr",
            "nolock",
            "nosuid",
            "nodev",
            "noatime",
            "nfs",
            "user",
            "users",
            "_netdev",
            "auto",
            "nofail",
        ],
        "is not needed",
    ),
    (&["hard"], "is --wait with a long time, such as --wait 1h"),
    (&["rw"], "is not available: nfsw mounts read-only"),
    (&["vers", "nfsvers", "v4", "minorversion"], "is not available: nfsw speaks NFSv3"),
    (&["tcp", "proto=tcp6"], "is --transport tcp"),
    (&["udp", "proto=udp6"], "is --transport udp"),
    (&["proto", "mountproto"], "is --transport {}"),
    (&["port"], "is part of the name: nfs://HOST:{}/PATH"),
    (&["mountport"], "is part of the name: nfs://HOST/PATH?mountport={}"),
    (&["rsize", "wsize"], "is --block-size {}"),
    (&["timeo"], "is --timeo, in seconds or milliseconds (mount counts tenths of a second)"),
    (&["retrans"], "is not needed: --wait says how long programs wait"),
    (&["sec"], "is in the configuration (docs/config.md): sys or none"),
    (&["nconnect"], "is not needed: connections are made where they help"),
    (
        &["ac", "noac", "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax"],
        "is not needed: every open asks the server while it responds",
    ),
    (&["uid"], "is --uid {}"),
    (&["gid"], "is --gid {}"),
];
