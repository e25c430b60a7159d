//! The table.

use super::{
    Boolean, Event, Field, Integer, IntegerOrNull, List, MaybeBoolean, MaybeInteger, MaybeList, MaybeName,
    MaybeText, Name, Number, Object, Text, TextOrNull, Time,
};

const DRY_RUN: Field = Field("dry_run", MaybeBoolean, "with `--dry-run`: nothing was done");
const CHANGE: Field =
    Field("change", MaybeText, "what differed, for `sync`: `new`, `size`, `time`, `contents` ...");
const PATH: Field = Field("path", Name, "path on the server");
const SOURCE: Field = Field("source", Name, "what is copied");
const TARGET: Field = Field("target", Name, "where to");

/// A file, directory or link that was copied or made.
const MADE: &[Field] = &[
    Field("source", MaybeName, "what was copied, for `cp` and `sync`"),
    Field("target", MaybeName, "where to, for `cp` and `sync`"),
    Field("path", MaybeName, "path on the server, for `mkdir` and `ln`"),
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
            Field("goodput_bps", Integer, "file bits a second"),
            Field("calls", Integer, "calls sent, each once"),
            Field(
                "resends",
                Object,
                "attempts after the first, by reason: `timeout`, `rack`, `probe`, `hedge`, `reconnect`",
            ),
            Field("withdrawn", Object, "calls taken back, by reason: `resegment`, `too_large`, `hand_over`"),
            Field("useless_resends", Integer, "attempts that an earlier one made useless"),
            Field("rtt_ms", Object, "round trips in milliseconds: `p50`, `p95`, `p99`, or null"),
            Field("rtt_ns", Object, "the same in nanoseconds"),
            Field("transport", TextOrNull, "`udp`, `tcp` or `mixed`"),
            Field("block_size", IntegerOrNull, "bytes per READ or WRITE"),
            Field(
                "counts",
                Object,
                "`done`, `skipped` by reason, `resumed`, `verified`, `deleted`, `failed`",
            ),
            Field("outcome", Text, "the exit status as a word"),
            Field("exit_code", Integer, "the exit status"),
        ],
    },
    Event {
        name: "error",
        commands: "all",
        meaning: "Something failed.",
        fields: &[
            Field("kind", Text, "one of the kinds above"),
            Field("message", Text, "what a person is told"),
            Field("exit_code", Integer, "the exit status that follows if all that fails is of this kind"),
        ],
    },
    Event {
        name: "warning",
        commands: "all",
        meaning: "Something that the user should know, but no failure.",
        fields: &[Field("message", Text, "what a person is told")],
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
            Field("rate_bps", Integer, "bits a second, of the last seconds"),
            Field("stalled_ns", Integer, "how long nothing has moved"),
            Field("rtt_ns", IntegerOrNull, "median round trip"),
            Field("resends", Integer, "attempts after the first so far"),
        ],
    },
    Event { name: "file", commands: "cp, sync", meaning: "A file was copied.", fields: MADE },
    Event {
        name: "directory",
        commands: "cp, sync, mkdir",
        meaning: "A directory was made or entered.",
        fields: MADE,
    },
    Event { name: "link", commands: "cp, sync, ln", meaning: "A link was made.", fields: MADE },
    Event {
        name: "skipped",
        commands: "cp, sync, mv",
        meaning: "A file was left as it is.",
        fields: &[
            SOURCE,
            TARGET,
            Field(
                "reason",
                MaybeText,
                "`complete`, `exists`, `not_older`, `unchanged` or `special`; for `mv` always that it exists",
            ),
        ],
    },
    Event {
        name: "resumed",
        commands: "cp, sync",
        meaning: "The copy of a file goes on with what an interrupted run has left.",
        fields: &[SOURCE, TARGET, Field("bytes", Integer, "bytes that are there")],
    },
    Event {
        name: "differs",
        commands: "cp, sync",
        meaning: "A copy is not as its source.",
        fields: &[
            SOURCE,
            TARGET,
            Field("ranges", List, "pairs of the first byte that differs and the one behind the last"),
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
        meaning: "What was done in all, or would be.",
        fields: &[
            Field("dry_run", Boolean, "whether nothing was done"),
            Field("new", Integer, "files and directories that were not there"),
            Field("changed", Integer, "those that were different"),
            Field("deleted", Integer, "those that the source does not have"),
            Field("unchanged", Integer, "those that are as their source"),
            Field("bytes", Integer, "bytes of new and changed files"),
        ],
    },
    Event { name: "removed", commands: "rm", meaning: "Something was removed.", fields: &[PATH] },
    Event {
        name: "moved",
        commands: "mv",
        meaning: "Something has another name.",
        fields: &[SOURCE, TARGET],
    },
    Event {
        name: "mode",
        commands: "chmod",
        meaning: "Permissions are as asked for.",
        fields: &[PATH, Field("mode", Text, "permissions, in octal digits")],
    },
    Event {
        name: "entry",
        commands: "ls",
        meaning: "An entry of a directory.",
        fields: attributes!(Field("name", Name, "as it is listed")),
    },
    Event {
        name: "stat",
        commands: "stat",
        meaning: "What the server says of a file.",
        fields: attributes!(),
    },
    Event {
        name: "space",
        commands: "df",
        meaning: "The room on a file system.",
        fields: &[
            PATH,
            Field("export", Name, "the export that holds the path"),
            Field("total_bytes", Integer, "size"),
            Field("free_bytes", Integer, "free"),
            Field("available_bytes", Integer, "free for this user"),
            Field("total_files", Integer, "files that there may be"),
            Field("free_files", Integer, "files that may be made"),
        ],
    },
    Event {
        name: "export",
        commands: "exports, doctor",
        meaning: "A directory that a server exports.",
        fields: &[PATH, Field("groups", List, "to whom; empty: to everyone")],
    },
    Event {
        name: "cached",
        commands: "cache ls",
        meaning: "A directory that was mounted, of which something is kept.",
        fields: &[
            Field("target", Name, "how it was mounted last"),
            Field("place", Name, "the directory of this machine that has it"),
            Field("bytes", Integer, "file data kept"),
            Field("files", Integer, "files of which data is kept"),
            Field("used", Time, "when it was mounted last"),
            Field("mounted", Boolean, "whether it is now"),
            Field("pins", List, "paths below it that are pinned"),
        ],
    },
    Event {
        name: "cached_file",
        commands: "cache ls TARGET",
        meaning: "A file of which data is kept.",
        fields: &[
            Field("target", Name, "which"),
            Field("bytes", Integer, "data kept"),
            Field("used", Time, "when a program used it last"),
            Field("pinned", Boolean, "whether it stays when room is made"),
        ],
    },
    Event {
        name: "pinned",
        commands: "cache pin",
        meaning: "What lies there stays in the cache when room is made, or does not any more.",
        fields: &[Field("target", Name, "where"), Field("pinned", Boolean, "whether it stays")],
    },
    Event {
        name: "dropped",
        commands: "cache drop",
        meaning: "What lies there is not in the cache any more.",
        fields: &[
            Field("target", Name, "where"),
            Field("files", Integer, "files of which data was kept"),
            Field("bytes", Integer, "data that was kept"),
        ],
    },
    Event {
        name: "damaged",
        commands: "cache verify",
        meaning: "Data in the cache is not what was fetched.",
        fields: &[Field("target", Name, "the file"), Field("pieces", Integer, "how many pieces of 64 KiB")],
    },
    Event {
        name: "verified_cache",
        commands: "cache verify",
        meaning: "The data kept of a directory was read.",
        fields: &[
            Field("target", Name, "the directory"),
            Field("files", Integer, "files of which data is kept"),
            Field("bytes", Integer, "data read"),
        ],
    },
    Event {
        name: "mounted",
        commands: "mount, mount --status",
        meaning: "The state of a mount: when it works, and again when the server ceases or begins to respond.",
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
            Field("stale", Integer, "those that were answered with what the server could not confirm"),
            Field("waiting", Integer, "those that wait now"),
            Field("held_bytes", Integer, "file data held"),
            Field("prefetched_bytes", Integer, "file data fetched before anybody asked"),
            Field("objects", Integer, "files and directories known"),
            Field("hoard_is_full", Boolean, "a part of what is to be hoarded has no room"),
            Field("fetching", TextOrNull, "the file that is fetched though nobody waits for it"),
        ],
    },
    Event {
        name: "unmounted",
        commands: "mount, umount",
        meaning: "A directory is not mounted any more.",
        fields: &[
            Field("directory", Name, "where it was mounted"),
            Field("in_use", Boolean, "programs still use it; for them it ends when they close it"),
        ],
    },
    Event {
        name: "ping",
        commands: "ping",
        meaning: "A call and its answer.",
        fields: &[
            Field("transport", Text, "`udp` or `tcp`"),
            Field("number", Integer, "from 1 on"),
            Field("rtt_ns", IntegerOrNull, "round trip; null without an answer"),
        ],
    },
    Event {
        name: "transport",
        commands: "ping",
        meaning: "What came of all calls over a transport.",
        fields: &[
            Field("transport", Text, "`udp` or `tcp`"),
            Field("sent", Integer, "calls"),
            Field("answered", Integer, "answers"),
            Field("loss_pct", Number, "calls without an answer, in percent"),
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
            Field("uid", Integer, "user that calls came from"),
            Field("gid", Integer, "group that calls came from"),
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
            Field("flavors", List, "authentication that the server takes"),
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
            Field("time_delta_ns", Integer, "step of times"),
            Field("properties", Integer, "the bits of the reply"),
        ],
    },
    Event {
        name: "names",
        commands: "doctor",
        meaning: "What PATHCONF says (RFC 1813 §3.3.20).",
        fields: &[
            Field("name_max", Integer, "longest name"),
            Field("linkmax", Integer, "hard links of a file, at most"),
            Field("no_trunc", Boolean, "longer names are refused"),
            Field("case_insensitive", Boolean, "names are equal whatever their case"),
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
            Field("url", Text, "what clients are given, without the final slash"),
            Field("read_only", Boolean, "whether every change is refused"),
        ],
    },
    Event {
        name: "config",
        commands: "config",
        meaning: "The configuration file.",
        fields: &[
            Field("path", Name, "where it is, or would be"),
            Field("exists", Boolean, "whether it is there"),
            Field("hosts", MaybeList, "the hosts that it names, for `check`"),
            Field("defaults", MaybeInteger, "options that it sets, for `check`"),
            Field("environment", MaybeInteger, "options that NFSW_OPTS sets, for `check`"),
        ],
    },
    Event {
        name: "test",
        commands: "doctor",
        meaning: "Something that was tried.",
        fields: &[Field("what", Text, "what"), Field("came", Text, "what came of it")],
    },
    Event {
        name: "quirk",
        commands: "doctor",
        meaning: "Something odd.",
        fields: &[Field("text", Text, "a sentence")],
    },
    Event {
        name: "advice",
        commands: "doctor",
        meaning: "Something to change on the server.",
        fields: &[Field("text", Text, "a sentence")],
    },
];
