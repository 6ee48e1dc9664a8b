//! Who may use a pool beside its own user: the group and mode of its socket, and its operators.

use nix::unistd::Group;

use super::quotas::parse_user;
use super::{ConfigError, Overrides};

/// Most operators.
const OPERATORS_MAX: usize = 256;

/// Who may use a pool beside its own user and root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserOptions {
    /// The group of the socket: its name, and its number.
    pub group: Option<(String, u32)>,
    /// The mode of the socket.
    pub mode: Option<u32>,
    /// Users who may give orders: as written, and their numbers.
    pub operators: Vec<(String, u32)>,
}

impl UserOptions {
    /// These, and `file` where they say nothing.
    pub(super) fn over(self, file: Self) -> Self {
        let operators = if self.operators.is_empty() { file.operators } else { self.operators };
        Self { group: self.group.or(file.group), mode: self.mode.or(file.mode), operators }
    }

    /// The mode of the socket, if it is not the default.
    #[must_use]
    pub fn socket_mode(&self) -> Option<u32> {
        self.mode.or_else(|| self.group.as_ref().map(|_| 0o660))
    }
}

/// Reads the flags.
pub(super) fn parse_flags(flags: &Overrides) -> Result<UserOptions, ConfigError> {
    let group = flags.socket_group.as_deref().map(parse_group).transpose();
    let mode = flags.socket_mode.as_deref().map(parse_mode).transpose();
    let operators = parse_operators(flags.operators.iter().map(String::as_str));
    Ok(UserOptions {
        group: group.map_err(|reason| flags.wrong("--socket-group", reason))?,
        mode: mode.map_err(|reason| flags.wrong("--socket-mode", reason))?,
        operators: operators.map_err(|reason| flags.wrong("--operators", reason))?,
    })
}

/// Reads the name of a group.
pub(super) fn parse_group(name: &str) -> Result<(String, u32), String> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok((name.to_owned(), group.gid.as_raw())),
        Ok(None) => Err(format!(
            "there is no group `{name}` on this machine: `getent group` lists those there are"
        )),
        Err(errno) => Err(format!("the group `{name}` cannot be looked up: {errno}")),
    }
}

/// Reads the mode of a socket, in octal.
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| mode & 0o600 == 0o600 && mode & !0o666 == 0).ok_or_else(|| {
        format!(
            "`{text}` is not the mode of a socket: write 0600, 0660 for its group, or 0666 for everybody"
        )
    })
}

/// Reads the operators.
pub(super) fn parse_operators<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<(String, u32)>, String> {
    let parse = |name: &str| Ok((name.to_owned(), parse_user(name)?));
    let all = names.into_iter().map(parse).collect::<Result<Vec<_>, String>>()?;
    match all.len() {
        ..=OPERATORS_MAX => Ok(all),
        many => Err(format!("{many} operators: name at most {OPERATORS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_modes_and_operators_are_read_or_refused_with_a_sentence() {
        assert_eq!(parse_group("root"), Ok(("root".to_owned(), 0)));
        assert!(parse_group("no-such-group").unwrap_err().contains("`getent group`"));
        assert_eq!(["0600", "660", "0666"].map(parse_mode), [Ok(0o600), Ok(0o660), Ok(0o666)]);
        for wrong in ["", "0060", "0777", "1666", "rw", "0x1"] {
            assert!(parse_mode(wrong).unwrap_err().contains("write 0600, 0660"), "{wrong}");
        }
        let both = parse_operators(["root", "65534"]).unwrap();
        assert_eq!(both, [("root".to_owned(), 0), ("65534".to_owned(), 65_534)]);
        assert!(parse_operators(["nobody-of-that-name"]).unwrap_err().contains("there is no user"));
        let group = UserOptions { group: Some(("root".to_owned(), 0)), ..UserOptions::default() };
        assert_eq!(group.socket_mode(), Some(0o660));
        assert_eq!(UserOptions::default().socket_mode(), None);
    }
}
