//! The procedures of NFS and MOUNT that a reader calls, with what is odd about them.

use nfs_wire::{
    DecodeError, FileHandle, Procedure, Reader, Status, encode,
    mount::procedure,
    nfs3_types::{
        mount::{fhandle3, mountres3_ok},
        nfs3::{
            FSINFO3resok, FSSTAT3resok, Nfs3Option, PATHCONF3resok, fattr3, ftype3, nfstime3, post_op_attr,
        },
        xdr_codec::{Opaque, Pack},
    },
    rpc::{CallHeader, Program, Rejection, ReplyHeader},
};

use crate::{
    faults::{Entries, Faults},
    server::State,
    tree::{Id, Kind},
};

/// From here on, numbers are of the files in an endless directory.
const MADE_UP: Id = 1 << 48;

/// Answers a call; `None` if it is not answered. `limit` is the size of a READ, and of a page of a listing.
pub(crate) fn answer(
    state: &mut State,
    header: &CallHeader,
    arguments: Reader<'_>,
    limit: usize,
) -> Option<Vec<u8>> {
    if state.faults.silent {
        return None;
    }
    let mut results = Vec::new();
    let outcome = match header.program {
        Program::NFS => {
            *state.calls.entry(header.procedure).or_default() += 1;
            serve(state, Procedure::from_number(header.procedure)?, arguments, limit, &mut results)?
        }
        Program::MOUNT => {
            mount(state, header.procedure, &mut results);
            Ok(())
        }
        _ => Err(Rejection::ProgramUnavailable),
    };
    let mut reply = Vec::with_capacity(24 + results.len());
    ReplyHeader { xid: header.xid, outcome }.encode(&mut reply);
    if outcome.is_ok() {
        reply.append(&mut results);
    }
    Some(reply)
}

fn mount(state: &State, called: u32, results: &mut Vec<u8>) {
    match called {
        procedure::MNT => {
            let handle = handle(state, state.tree.root);
            let fhandle = fhandle3(Opaque::borrowed(handle.as_bytes()));
            encode(results, &0_u32);
            encode(results, &mountres3_ok { fhandle, auth_flavors: vec![1, 0] });
        }
        // No mounts, and one export, for everyone.
        procedure::DUMP => encode(results, &false),
        procedure::EXPORT => {
            encode(results, &true);
            encode(results, &Opaque::borrowed(b"/"));
            encode(results, &0_u32);
            encode(results, &false);
        }
        _ => {}
    }
}

/// A handle has the number of the root, which tells servers apart, and that of the file.
fn handle(state: &State, id: Id) -> FileHandle {
    FileHandle::try_from(&[state.tree.root.to_be_bytes(), id.to_be_bytes()].concat()[..]).unwrap()
}

fn serve(
    state: &mut State,
    procedure: Procedure,
    mut arguments: Reader<'_>,
    limit: usize,
    results: &mut Vec<u8>,
) -> Option<Result<(), Rejection>> {
    if procedure == Procedure::Null {
        return Some(Ok(()));
    }
    let Ok(object) = FileHandle::decode(&mut arguments) else {
        return Some(Err(Rejection::GarbageArguments));
    };
    let (root, id) = object.as_bytes().split_at_checked(8)?;
    let id = u64::from_be_bytes(id.try_into().ok()?);
    if state.faults.silent_about == Some(id) {
        return None;
    }
    let known =
        if root == state.tree.root.to_be_bytes() { attributes(state, id) } else { Err(Status::STALE) };
    let made = match (state.faults.fail, known) {
        (Some(status), _) | (None, Err(status)) => Ok(Err(status)),
        (None, Ok(known)) => {
            let mut call = Call { state, id, known, results, limit };
            call.serve(procedure, arguments)
        }
    };
    match made {
        Ok(Ok(())) => {}
        Ok(Err(status)) => {
            results.clear();
            encode(results, &status.code());
            if procedure != Procedure::Getattr {
                encode(results, &false);
            }
        }
        Err(_) => return Some(Err(Rejection::GarbageArguments)),
    }
    Some(Ok(()))
}

/// What GETATTR tells of a file at this moment.
fn attributes(state: &mut State, id: Id) -> Result<fattr3, Status> {
    if id >= MADE_UP {
        let mut known = state.tree.attributes(state.tree.root)?;
        (known.type_, known.fileid, known.mode) = (ftype3::NF3REG, id, 0o644);
        return Ok(known);
    }
    let mut known = state.tree.attributes(id)?;
    if state.faults.changing_ids && known.type_ == ftype3::NF3DIR && id != state.tree.root {
        state.changes += 1;
        known.fileid = (1 << 32) + state.changes;
    }
    Ok(known)
}

/// One call in service.
struct Call<'a> {
    state: &'a mut State,
    id: Id,
    known: fattr3,
    results: &'a mut Vec<u8>,
    limit: usize,
}

type Made = Result<Result<(), Status>, DecodeError>;

impl Call<'_> {
    fn serve(&mut self, procedure: Procedure, mut arguments: Reader<'_>) -> Made {
        match procedure {
            Procedure::Getattr => {
                let known = self.known.clone();
                self.put(&0_u32);
                self.put(&known);
            }
            Procedure::Lookup => return Ok(self.lookup(arguments.opaque("name", 255)?)),
            Procedure::Access => {
                self.begin();
                self.put(&arguments.u32("access")?);
            }
            Procedure::Readlink => {
                let Kind::Link(target) = &self.state.tree.nodes[&self.id].kind else {
                    return Ok(Err(Status::INVAL));
                };
                let target = target.clone();
                self.begin();
                self.put(&Opaque::borrowed(&target));
            }
            Procedure::Read => {
                let (offset, count) = (arguments.u64("offset")?, arguments.u32("count")?);
                return Ok(self.read(offset as usize, count as usize));
            }
            Procedure::Readdir => {
                let cookie = arguments.u64("cookie")?;
                if arguments.u64("verifier")? != self.verifier() && cookie > 0 {
                    return Ok(Err(Status::BAD_COOKIE));
                }
                let count = arguments.u32("count")?;
                return Ok(self.list(cookie, count as usize, usize::MAX, false));
            }
            Procedure::Readdirplus if !self.state.faults.no_readdirplus => {
                let cookie = arguments.u64("cookie")?;
                if arguments.u64("verifier")? != self.verifier() && cookie > 0 {
                    return Ok(Err(Status::BAD_COOKIE));
                }
                let (names, count) = (arguments.u32("dircount")?, arguments.u32("maxcount")?);
                return Ok(self.list(cookie, count as usize, names as usize, true));
            }
            Procedure::Fsinfo => {
                let (obj_attributes, limit) = (self.post_op(Some(self.known.clone())), self.limit as u32);
                let time_delta = nfstime3 { seconds: 0, nseconds: 1 };
                self.put(&0_u32);
                self.put(&FSINFO3resok {
                    obj_attributes,
                    rtmax: limit,
                    rtpref: limit,
                    rtmult: 512,
                    wtmax: limit,
                    wtpref: limit,
                    wtmult: 512,
                    dtpref: limit,
                    maxfilesize: 1 << 60,
                    time_delta,
                    properties: 0x1b,
                });
            }
            Procedure::Fsstat => {
                let obj_attributes = self.post_op(Some(self.known.clone()));
                let (tbytes, fbytes, abytes) = (SPACE, SPACE / 2, SPACE / 2);
                let (tfiles, ffiles, afiles, invarsec) = (1000, 500, 500, 0);
                self.put(&0_u32);
                self.put(&FSSTAT3resok {
                    obj_attributes,
                    tbytes,
                    fbytes,
                    abytes,
                    tfiles,
                    ffiles,
                    afiles,
                    invarsec,
                });
            }
            Procedure::Pathconf => {
                let obj_attributes = self.post_op(Some(self.known.clone()));
                self.put(&0_u32);
                self.put(&PATHCONF3resok {
                    obj_attributes,
                    linkmax: 100,
                    name_max: 255,
                    no_trunc: true,
                    chown_restricted: true,
                    case_insensitive: false,
                    case_preserving: true,
                });
            }
            _ => return Ok(Err(Status::NOTSUPP)),
        }
        Ok(Ok(()))
    }

    fn put(&mut self, item: &impl Pack) {
        encode(self.results, item);
    }

    fn post_op(&self, known: Option<fattr3>) -> post_op_attr {
        known.filter(|_| !self.state.faults.no_post_op).map_or(Nfs3Option::None, Nfs3Option::Some)
    }

    /// Success, and attributes of the object.
    fn begin(&mut self) {
        let known = self.post_op(Some(self.known.clone()));
        self.put(&0_u32);
        self.put(&known);
    }

    fn lookup(&mut self, name: &[u8]) -> Result<(), Status> {
        let found = self.state.tree.lookup(self.id, name)?;
        let known = attributes(self.state, found)?;
        self.put(&0_u32);
        self.put(&handle(self.state, found));
        self.put(&self.post_op(Some(known)));
        self.put(&self.post_op(Some(self.known.clone())));
        if let Some(path) = self.state.faults.replaced.filter(|path| path.as_bytes() == name) {
            let Kind::File(bytes) = self.state.tree.nodes[&found].kind.clone() else { return Ok(()) };
            self.state.tree.replace(path, bytes);
        }
        Ok(())
    }

    fn read(&mut self, offset: usize, count: usize) -> Result<(), Status> {
        let Some(Kind::File(bytes)) = self.state.tree.nodes.get(&self.id).map(|node| &node.kind) else {
            return Err(Status::INVAL);
        };
        let start = offset.min(bytes.len());
        let count = if self.state.faults.empty_reads { 0 } else { count.min(self.limit) };
        let end = start.saturating_add(count).min(bytes.len());
        let (data, eof) = (bytes[start..end].to_vec(), end == bytes.len() && !self.state.faults.empty_reads);
        self.begin();
        self.put(&(data.len() as u32));
        self.put(&eof);
        self.put(&Opaque::borrowed(&data));
        Ok(())
    }

    /// What the cookies of a listing are good for.
    const fn verifier(&self) -> u64 {
        let time = self.known.mtime;
        if self.state.faults.strict_cookies { (time.seconds as u64) << 32 | time.nseconds as u64 } else { 0 }
    }

    /// READDIR and READDIRPLUS.
    fn list(&mut self, cookie: u64, most: usize, most_names: usize, plus: bool) -> Result<(), Status> {
        let directory = self.state.tree.directory(self.id)?;
        let parent = directory.parent;
        let own = [(1, b".".to_vec(), self.id), (2, b"..".to_vec(), parent)];
        let hostile = self.state.faults.hostile.filter(|_| self.id == self.state.tree.root);
        let hostile = hostile.map(|name| (3, name.to_vec(), MADE_UP - 1));
        let rest =
            directory.order.range(cookie + 1..).map(|(cookie, (name, id))| (*cookie, name.clone(), *id));
        let endless = self.state.faults.endless == Some(self.id);
        let made_up = (cookie.max(MADE_UP)..).filter(|_| endless).take(if endless { 2000 } else { 0 });
        let made_up = made_up.map(|it| (it + 1, format!("{it:x}-of-names-without-end").into_bytes(), it));
        let all: Vec<_> = own
            .into_iter()
            .chain(hostile)
            .filter(|it| it.0 > cookie)
            .chain(rest)
            .chain(made_up)
            // A page has 2000 entries at most.
            .take(2000)
            .collect();
        let count = all.len();
        self.begin();
        self.put(&self.verifier());
        let (most, mut names, mut told) = (most.min(self.limit), 0, 0);
        for (cookie, name, id) in all {
            let mut entry = Vec::new();
            self.entry(&mut entry, cookie, &name, id, plus);
            names += 24 + name.len();
            if self.results.len() + entry.len() + 8 > most || (names > most_names && told > 0) {
                break;
            }
            self.results.append(&mut entry);
            told += 1;
        }
        if told == 0 && count > 0 {
            return Err(Status::TOOSMALL);
        }
        self.put(&false);
        self.put(&(told == count && count < 2000 && !endless));
        Ok(())
    }

    fn entry(&mut self, entry: &mut Vec<u8>, cookie: u64, name: &[u8], id: Id, plus: bool) {
        let known = attributes(self.state, id).ok();
        encode(entry, &true);
        encode(entry, &known.as_ref().map_or(id, |known| known.fileid));
        encode(entry, &Opaque::borrowed(name));
        encode(entry, &cookie);
        if !plus {
            return;
        }
        let second = id % 2 == 1 && !name.starts_with(b".");
        let Faults { entries, .. } = self.state.faults;
        // What is mounted on a directory is not told in the listing above it, as on Linux.
        let bare =
            known.is_none() || self.state.tree.is_covered(id) || (entries == Entries::SomeBare && second);
        let has_attributes = !bare && entries != Entries::WithoutAttributes;
        let lacks_handle = bare || entries == Entries::SomeWithoutHandles && second;
        encode(entry, &self.post_op(known.filter(|_| has_attributes)));
        encode(entry, &!lacks_handle);
        if !lacks_handle {
            encode(entry, &handle(self.state, id));
        }
    }
}

/// Bytes of the file system.
const SPACE: u64 = 1 << 40;
