//! Which calls may be run twice: the one place that decides it.

use nfs_wire::{Procedure, rpc::Program};

use crate::engine::Repeat;

/// What may be done with the copies of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// What running a second copy does.
    pub repeat: Repeat,
    /// Whether a second copy may be sent before anything says that the first one is lost.
    pub hedge: bool,
}

impl Copies {
    /// Returns the rule for a procedure of a program.
    pub fn of(program: Program, procedure: u32) -> Self {
        match program {
            Program::NFS => Procedure::from_number(procedure).map_or(Self::NEVER, Self::of_nfs),
            // A list of mounts looks the same after a second MNT (RFC 1813 §5.2.1), and port mappers are only asked.
            Program::MOUNT | Program::PORTMAP | Program::RPCBIND3 | Program::RPCBIND4 => Self::SMALL,
            _ => Self::NEVER,
        }
    }

    /// As [`Self::of`], for NFSv3 (RFC 1813 §3.3, §4.7).
    pub const fn of_nfs(procedure: Procedure) -> Self {
        use Procedure as P;
        match procedure {
            P::Null | P::Getattr | P::Lookup | P::Access => Self::SMALL,
            P::Fsstat | P::Fsinfo | P::Pathconf | P::Commit => Self::SMALL,
            // Their replies are long: a copy costs more than it saves.
            P::Readlink | P::Read | P::Readdir | P::Readdirplus => Self { hedge: false, ..Self::SMALL },
            // The second copy finds the file that the first one has made, by a verifier or by its time of last access.
            P::Create => Self { hedge: true, ..Self::NEVER },
            // Two WRITEs of an application may overlap. The others change what somebody else may have changed meanwhile.
            P::Write | P::Setattr | P::Mkdir | P::Symlink | P::Mknod => Self::NEVER,
            P::Remove | P::Rmdir | P::Rename | P::Link => Self::NEVER,
        }
    }

    /// Call and reply fit one frame, and a second copy does nothing more than the first.
    const SMALL: Self = Self { repeat: Repeat::Idempotent, hedge: true };

    const NEVER: Self = Self { repeat: Repeat::SameXid, hedge: false };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_keeps_its_xid_and_only_create_of_it_is_hedged() {
        for procedure in Procedure::ALL {
            let Copies { repeat, hedge } = Copies::of(Program::NFS, procedure.number());
            assert_eq!(repeat == Repeat::Idempotent, procedure.is_read_only(), "{procedure}");
            assert!(!hedge || procedure.is_read_only() || procedure == Procedure::Create, "{procedure}");
        }
        let hedged = Procedure::ALL.into_iter().filter(|&it| Copies::of_nfs(it).hedge);
        assert_eq!(
            hedged.map(Procedure::name).collect::<Vec<_>>(),
            ["NULL", "GETATTR", "LOOKUP", "ACCESS", "CREATE", "FSSTAT", "FSINFO", "PATHCONF", "COMMIT"]
        );
    }

    #[test]
    fn what_is_not_known_is_never_run_twice() {
        let known = [Program::NFS, Program::MOUNT, Program::PORTMAP, Program::RPCBIND3, Program::RPCBIND4];
        assert!(known.iter().all(|&program| Copies::of(program, 0) == Copies::SMALL));
        assert_eq!(Copies::of(Program::NFS, 22), Copies::NEVER);
        assert_eq!(Copies::of(Program { number: 100_021, version: 4 }, 0), Copies::NEVER);
    }
}
