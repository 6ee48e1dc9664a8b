//! Lets other users connect to a socket that this process has made.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nix::unistd::{Gid, Group, chown};

use super::{ListenError, SocketName, failed};

impl SocketName {
    /// Lets the members of a group connect, besides our user and root.
    pub(in crate::shell) fn admit_group(&self, name: &str) -> Result<(), String> {
        let group = Group::from_name(name).map_err(|errno| errno.to_string())?;
        let group = group.ok_or("there is no such group: `getent group` lists those there are")?;
        self.change(Some(group.gid), 0o660).map_err(|(_, source)| {
            format!("its socket cannot be given to it: {source}; be a member of the group, or root")
        })
    }

    /// Gives the socket a group and a mode. A socket of the service manager keeps those that it has.
    pub(in crate::shell) fn admit(&self, group: Option<u32>, mode: u32) -> Result<(), ListenError> {
        if !self.socket.is_kept {
            let changed = self.change(group.map(Gid::from_raw), mode);
            changed.map_err(|(what, source)| failed(&self.path, what)(source))?;
        }
        let folder = self.folder.file.metadata();
        if mode & 0o066 != 0 && folder.is_ok_and(|meta| meta.mode() & 0o011 == 0) {
            let folder = self.folder.path.display();
            tracing::warn!(%folder, "other users cannot enter the folder of the socket: `chmod a+x` it");
        }
        Ok(())
    }

    /// By its name in the folder that is held open, so that no other file is meant. The error says what failed.
    fn change(&self, group: Option<Gid>, mode: u32) -> Result<(), (&'static str, io::Error)> {
        const GROUP: &str =
            "the socket cannot be given to its group; be a member of the group, or root";
        let name = &self.socket.name;
        if group.is_some() {
            chown(name, None, group).map_err(|errno| (GROUP, errno.into()))?;
        }
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(name, mode).map_err(|error| ("the socket's mode cannot be set", error))
    }
}
