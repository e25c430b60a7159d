//! The table.

use super::{
    Boolean, Event, Field, Integer, IntegerOrNull, List, MaybeBoolean, MaybeInteger, MaybeList, MaybeName,
    MaybeText, MaybeTime, Name, Number, Object, Text, TextOrNull, Time,
};

const DRY_RUN: Field = Field("dry_run", MaybeBoolean, "with `--dry-run`: nothing was done");
const CHANGE: Field = Field(
    "change",
    MaybeText,
    "what differed, for `sync`: `new`, `replaced`, `size`, `time`, `contents`, `target` (of a link), `kind`, `attributes` (only owner, mode or time was set) or `hard_link` (another name of a file)",
);
const PATH: Field = Field("path", Name, "path on the server");
const SOURCE: Field = Field("source", Name, "what is copied");
const TARGET: Field = Field("target", Name, "where to");

/// A file that was copied.
const COPIED: &[Field] = &[SOURCE, TARGET, Field("bytes", Integer, "size of the source"), CHANGE, DRY_RUN];

/// A directory or link that was copied or made.
const MADE: &[Field] = &[
    Field("source", MaybeName, "what was copied, for `cp` and `sync`"),
    Field("target", MaybeName, "the copy, for `cp` and `sync`"),
    Field("path", MaybeName, "path on the server; `cp` and `sync` have source and target instead"),
    Field("bytes", MaybeInteger, "size of the source, for `cp` and `sync`"),
    CHANGE,
    DRY_RUN,
];

/// What is known of a file.
macro_rules! attributes {
    ($($more:expr),*) => {
        &[
            $($more,)*
            PATH,
            Field("host", Text, "the server, as it was named"),
            Field("type", Text, "`file`, `directory`, `symlink`, `block device`, `character device`, `socket` or `fifo`"),
            Field("mode", Text, "permissions, in octal digits"),
            Field("links", Integer, "hard links"),
            Field("uid", Integer, "owner"),
            Field("gid", Integer, "group"),
            Field("size", Integer, "bytes"),
            Field("used", Integer, "bytes on the disk"),
            Field("fsid", Integer, "file system"),
            Field("fileid", Integer, "number of the file in it"),
            Field("atime", Time, "last access"),
            Field("mtime", Time, "last change of the contents"),
            Field("ctime", Time, "last change of the attributes"),
            Field("target", MaybeName, "where a symbolic link points"),
        ]
    };
}

/// All events.
pub(super) const EVENTS: &[Event] = &[
    Event {
        name: "summary",
        commands: "all; the last line",
        meaning: "What the run did.",
        fields: &[
            Field("schema_version", Integer, "version of this schema"),
            Field("bytes", Integer, "file bytes moved"),
            Field("seconds", Number, "how long it took"),
            Field("elapsed_ns", Integer, "the same"),
            Field("goodput_bps", Integer, "file bits per second"),
            Field("calls", Integer, "calls sent, each once"),
            Field(
                "resends",
                Object,
                "attempts after the first, by reason: `timeout`, `rack`, `probe`, `hedge`, `reconnect`",
            ),
            Field(
                "withdrawn",
                Object,
                "READs and WRITEs withdrawn, by reason: `resegment` (smaller blocks replace them), `too_large` (the server takes no block of that size), `hand_over` (another connection continues the transfer)",
            ),
            Field("spurious_resends", Integer, "spurious retransmissions: an earlier attempt was answered"),
            Field("rtt_ms", Object, "round trips in milliseconds: `p50`, `p95`, `p99`, or null"),
            Field("rtt_ns", Object, "the same in nanoseconds"),
            Field("transport", TextOrNull, "`udp`, `tcp` or `mixed`"),
            Field("block_size", IntegerOrNull, "bytes per READ or WRITE"),
            Field(
                "counts",
                Object,
                "`done`, `skipped` by reason, `resumed`, `verified`, `deleted`, `failed`",
            ),
            Field(
                "outcome",
                Text,
                "the exit status as a word: `done`, `some_failed`, `usage`, `unreachable`, `source_missing`, `gave_up`, `verify_mismatch`, `local_io` or `interrupted`",
            ),
            Field("exit_code", Integer, "the exit status"),
        ],
    },
    Event {
        name: "error",
        commands: "all",
        meaning: "Something failed.",
        fields: &[
            Field("kind", Text, "one of the kinds above"),
            Field("message", Text, "the message for people"),
            Field("exit_code", Integer, "the exit status if nothing else fails"),
        ],
    },
    Event {
        name: "warning",
        commands: "all",
        meaning: "Something that the user should know, but not a failure.",
        fields: &[Field("message", Text, "the message for people")],
    },
    Event {
        name: "progress",
        commands: "cp, sync; once a second",
        meaning: "How far the run is.",
        fields: &[
            Field("bytes", Integer, "file bytes copied"),
            Field("expected_bytes", Integer, "file bytes to copy, as far as known"),
            Field("files", Integer, "files done"),
            Field("expected_files", Integer, "files to copy, as far as known"),
            Field("rate_bps", Integer, "bits per second, over the last seconds"),
            Field("stalled_ns", Integer, "how long nothing has moved"),
            Field("rtt_ns", IntegerOrNull, "median round trip"),
            Field("resends", Integer, "attempts after the first so far"),
        ],
    },
    Event { name: "file", commands: "cp, sync", meaning: "A file was copied.", fields: COPIED },
    Event {
        name: "directory",
        commands: "cp, sync, mkdir",
        meaning: "A directory was created, or existed already.",
        fields: MADE,
    },
    Event { name: "link", commands: "cp, sync, ln", meaning: "A link was made.", fields: MADE },
    Event {
        name: "skipped",
        commands: "cp, sync, mv",
        meaning: "A file was skipped.",
        fields: &[
            SOURCE,
            TARGET,
            Field(
                "reason",
                MaybeText,
                "`complete`, `exists`, `not_older`, `newer` (the exit status is 1), `unchanged`, `special`, `partial` or `leads_out`; missing for `mv`, where the target exists",
            ),
        ],
    },
    Event {
        name: "resumed",
        commands: "cp, sync",
        meaning: "The copy of a file resumes where an interrupted run ended.",
        fields: &[SOURCE, TARGET, Field("bytes", Integer, "bytes that are already copied")],
    },
    Event {
        name: "differs",
        commands: "cp, sync",
        meaning: "A copy differs from its source.",
        fields: &[
            SOURCE,
            TARGET,
            Field(
                "ranges",
                List,
                "pairs of offsets: the start of a range of MiB that differ, and the byte after its end",
            ),
        ],
    },
    Event {
        name: "deleted",
        commands: "sync",
        meaning: "Something was deleted that the source does not have.",
        fields: &[Field("path", Name, "what was deleted"), DRY_RUN],
    },
    Event {
        name: "totals",
        commands: "sync",
        meaning: "What was done in total, or would be done.",
        fields: &[
            Field("dry_run", Boolean, "whether nothing was done"),
            Field("new", Integer, "files and directories that did not exist"),
            Field("changed", Integer, "those that were different"),
            Field("deleted", Integer, "those that the source does not have"),
            Field("unchanged", Integer, "files and links that are the same as their source"),
            Field("bytes", Integer, "bytes of new and changed files"),
        ],
    },
    Event { name: "removed", commands: "rm", meaning: "Something was removed.", fields: &[PATH] },
    Event {
        name: "moved",
        commands: "mv",
        meaning: "A file or directory was renamed.",
        fields: &[Field("source", Name, "its old name"), Field("target", Name, "its new name")],
    },
    Event {
        name: "mode",
        commands: "chmod",
        meaning: "Permissions were changed.",
        fields: &[PATH, Field("mode", Text, "permissions, in octal digits")],
    },
    Event {
        name: "entry",
        commands: "ls",
        meaning: "An entry of a directory.",
        fields: attributes!(Field("name", Name, "as it is listed")),
    },
    Event { name: "stat", commands: "stat", meaning: "The attributes of a file.", fields: attributes!() },
    Event {
        name: "space",
        commands: "df",
        meaning: "The space on a file system.",
        fields: &[
            PATH,
            Field("export", Name, "the export that holds the path"),
            Field("total_bytes", Integer, "size"),
            Field("free_bytes", Integer, "free"),
            Field("available_bytes", Integer, "free for this user"),
            Field("total_files", Integer, "maximum number of files"),
            Field("free_files", Integer, "files that can still be created"),
        ],
    },
    Event {
        name: "export",
        commands: "exports, doctor",
        meaning: "A directory that a server exports.",
        fields: &[PATH, Field("groups", List, "clients that may mount it; empty: everyone")],
    },
    Event {
        name: "cached",
        commands: "cache ls",
        meaning: "A mounted directory with data in the cache.",
        fields: &[
            Field("target", Name, "the name by which it was mounted last"),
            Field("place", Name, "the directory on this machine that holds the data"),
            Field("bytes", Integer, "file data in the cache"),
            Field("files", Integer, "files with data in the cache"),
            Field("used", Time, "when it was mounted last"),
            Field("mounted", Boolean, "whether it is mounted now"),
            Field("pins", List, "paths below it that are pinned"),
        ],
    },
    Event {
        name: "cached_file",
        commands: "cache ls TARGET",
        meaning: "A file with data in the cache.",
        fields: &[
            Field("target", Name, "the file"),
            Field("bytes", Integer, "data in the cache"),
            Field("used", Time, "when a program used it last"),
            Field("pinned", Boolean, "whether it is pinned"),
        ],
    },
    Event {
        name: "pinned",
        commands: "cache pin",
        meaning: "What is below TARGET was pinned, or is no longer pinned.",
        fields: &[Field("target", Name, "where"), Field("pinned", Boolean, "whether it stays")],
    },
    Event {
        name: "dropped",
        commands: "cache drop",
        meaning: "What is below TARGET was deleted from the cache.",
        fields: &[
            Field("target", Name, "where"),
            Field("files", Integer, "files that had data in the cache"),
            Field("bytes", Integer, "data that was deleted"),
        ],
    },
    Event {
        name: "damaged",
        commands: "cache verify",
        meaning: "Data in the cache is damaged.",
        fields: &[Field("target", Name, "the file"), Field("pieces", Integer, "damaged pieces of 64 KiB")],
    },
    Event {
        name: "verified_cache",
        commands: "cache verify",
        meaning: "The cached data of a directory was verified.",
        fields: &[
            Field("target", Name, "the directory"),
            Field("files", Integer, "files with data in the cache"),
            Field("bytes", Integer, "data read"),
        ],
    },
    Event {
        name: "mounted",
        commands: "mount, mount --status",
        meaning: "The state of a mount: when it works, and again when the server stops or starts responding.",
        fields: &[
            Field("target", Text, "what is mounted"),
            Field(
                "directory",
                Name,
                "where; with --via nfs and without DIR, the address at which it is served",
            ),
            Field("pid", Integer, "its process"),
            Field("since", Time, "when it was mounted"),
            Field("link", Text, "`up`, `down` or `another server`"),
            Field("link_ns", Integer, "for how long"),
            Field("operations", Integer, "requests of programs"),
            Field("hits", Integer, "those that were answered without a call"),
            Field("stale", Integer, "those that were answered with data that the server could not confirm"),
            Field("waiting", Integer, "those that wait now"),
            Field("held_bytes", Integer, "file data in the cache"),
            Field("prefetched_bytes", Integer, "file data fetched before a program requested it"),
            Field("objects", Integer, "files and directories known"),
            Field("hoard_is_full", Boolean, "not all hoarded files fit into the cache"),
            Field("fetching", TextOrNull, "the file that is being fetched in the background"),
        ],
    },
    Event {
        name: "unmounted",
        commands: "mount, umount",
        meaning: "A directory was unmounted.",
        fields: &[
            Field("directory", Name, "where it was mounted"),
            Field("in_use", Boolean, "programs still use it; they can do so until they close their files"),
        ],
    },
    Event {
        name: "ping",
        commands: "ping",
        meaning: "A call and its reply.",
        fields: &[
            Field("transport", Text, "`udp` or `tcp`"),
            Field("number", Integer, "from 1 on"),
            Field("rtt_ns", IntegerOrNull, "round trip; null without a reply"),
        ],
    },
    Event {
        name: "transport",
        commands: "ping",
        meaning: "The results of all calls over a transport.",
        fields: &[
            Field("transport", Text, "`udp` or `tcp`"),
            Field("sent", Integer, "calls"),
            Field("answered", Integer, "replies"),
            Field("loss_pct", Number, "calls without a reply, in percent"),
            Field("rtt_min_ns", IntegerOrNull, "shortest round trip"),
            Field("rtt_mean_ns", IntegerOrNull, "mean round trip"),
            Field("rtt_max_ns", IntegerOrNull, "longest round trip"),
        ],
    },
    Event {
        name: "server",
        commands: "doctor",
        meaning: "Which server was examined.",
        fields: &[
            Field("host", Text, "its name"),
            Field("address", Text, "its address"),
            Field("uid", Integer, "user id of the calls"),
            Field("gid", Integer, "group id of the calls"),
            Field("registered_nfs_versions", List, "versions of NFS that the port mapper knows"),
        ],
    },
    Event {
        name: "service",
        commands: "doctor",
        meaning: "A service of the server.",
        fields: &[
            Field("name", Text, "the service"),
            Field("version", Integer, "its version"),
            Field("udp", Object, "`port`, `answers`, `rtt_ns`, `trouble`"),
            Field("tcp", Object, "the same"),
        ],
    },
    Event {
        name: "mount",
        commands: "doctor",
        meaning: "An attempt to mount.",
        fields: &[
            PATH,
            Field("trouble", TextOrNull, "why it failed"),
            Field("handle_bytes", Integer, "length of the root's handle"),
            Field("flavors", List, "authentication flavours that the server accepts"),
        ],
    },
    Event {
        name: "limits",
        commands: "doctor",
        meaning: "What FSINFO says over a transport (RFC 1813 §3.3.19).",
        fields: &[
            Field("transport", Text, "`udp` or `tcp`"),
            Field("rtmax", Integer, "largest READ"),
            Field("rtpref", Integer, "preferred READ"),
            Field("wtmax", Integer, "largest WRITE"),
            Field("wtpref", Integer, "preferred WRITE"),
            Field("dtpref", Integer, "preferred READDIR"),
            Field("maxfilesize", Integer, "largest file"),
            Field("time_delta_ns", Integer, "resolution of times"),
            Field("properties", Integer, "the bits of the reply"),
        ],
    },
    Event {
        name: "names",
        commands: "doctor",
        meaning: "What PATHCONF says (RFC 1813 §3.3.20).",
        fields: &[
            Field("name_max", Integer, "longest name"),
            Field("linkmax", Integer, "maximum number of hard links of a file"),
            Field("no_trunc", Boolean, "longer names are refused"),
            Field("case_insensitive", Boolean, "names that differ only in case are equal"),
            Field("case_preserving", Boolean, "names keep their case"),
        ],
    },
    Event {
        name: "serving",
        commands: "serve, mount --via nfs; once it answers",
        meaning: "A directory is served.",
        fields: &[
            Field("path", Name, "the directory, or for `mount` what is mounted"),
            Field("address", Text, "address and port"),
            Field("url", Text, "the URL for clients, without the final slash"),
            Field("read_only", Boolean, "whether every change is refused"),
        ],
    },
    Event {
        name: "share",
        commands: "find",
        meaning: "A share that was found. What it says of itself is what a stranger says.",
        fields: &[
            Field("name", Text, "what the sharer calls it"),
            Field("key", Text, "the beginning of its public key, in 16 hexadecimal digits"),
            Field("addresses", List, "addresses with ports"),
            Field("codes", List, "numbers of the codes that nobody has used yet"),
            Field("since", MaybeTime, "when it began; missing for one that is not announced"),
            Field(
                "found",
                List,
                "how it was found: `mdns` (it is announced), `known` (it was used here, and answers)",
            ),
        ],
    },
    Event {
        name: "config",
        commands: "config",
        meaning: "The configuration file.",
        fields: &[
            Field("path", Name, "where it is, or would be if it existed"),
            Field("exists", Boolean, "whether it exists"),
            Field("hosts", MaybeList, "the hosts that it names, for `check`"),
            Field("defaults", MaybeInteger, "options that it sets, for `check`"),
            Field("environment", MaybeInteger, "options that NFSW_OPTS sets, for `check`"),
        ],
    },
    Event {
        name: "test",
        commands: "doctor",
        meaning: "A test of the server.",
        fields: &[Field("what", Text, "what was tested"), Field("came", Text, "what was found")],
    },
    Event {
        name: "quirk",
        commands: "doctor",
        meaning: "An unusual property of the server.",
        fields: &[Field("text", Text, "a sentence")],
    },
    Event {
        name: "advice",
        commands: "doctor",
        meaning: "What the administrator should change.",
        fields: &[Field("text", Text, "a sentence")],
    },
];
