//! What is kept of deaths: `capsules = "on"`, or the table `[capsules]` with its limits.

use std::time::Duration;

use gridpool_protocol::status::CapsuleMode;
use toml::de::DeValue;

use crate::state::Bounds;

/// What is set of capsules, by a flag or a file; `None` is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapsuleKeys {
    /// What they keep.
    pub mode: Option<CapsuleMode>,
    /// The numbers, by their names.
    pub numbers: Vec<(&'static str, u64)>,
}

/// What a pool keeps of deaths, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapsuleOptions {
    /// What a capsule keeps.
    pub mode: CapsuleMode,
    /// Bytes of inputs in one capsule, as JSON.
    pub bytes_max: u64,
    /// How much the folder may hold.
    pub folder: Bounds,
}

impl Default for CapsuleOptions {
    fn default() -> Self {
        let folder =
            Bounds { bytes: 1 << 30, age: Duration::from_secs(30 * 24 * 3_600), files: 200 };
        Self { mode: CapsuleMode::On, bytes_max: 16 << 20, folder }
    }
}

/// A number of the table: its name, its bounds, and where it goes.
struct Number {
    name: &'static str,
    least: u64,
    most: u64,
    of: fn(&mut CapsuleOptions) -> Place<'_>,
}

/// Where a number goes.
enum Place<'a> {
    Bytes(&'a mut u64),
    Seconds(&'a mut Duration),
    Count(&'a mut usize),
}

const NUMBERS: [Number; 4] = [
    Number {
        name: "bytes_max",
        least: 1 << 10,
        most: 1 << 26,
        of: |to| Place::Bytes(&mut to.bytes_max),
    },
    Number {
        name: "folder_bytes_max",
        least: 1 << 20,
        most: 1 << 50,
        of: |to| Place::Bytes(&mut to.folder.bytes),
    },
    Number {
        name: "age_max_s",
        least: 60,
        most: 10 * 365 * 24 * 3_600,
        of: |to| Place::Seconds(&mut to.folder.age),
    },
    Number {
        name: "count_max",
        least: 1,
        most: 10_000,
        of: |to| Place::Count(&mut to.folder.files),
    },
];

/// The folder has room for so many of the largest capsules: else the latest could leave no room for itself.
const FOLDER_CAPSULES_MIN: u64 = 2;

impl CapsuleKeys {
    /// Reads `capsules = "shapes"`, or the table.
    pub(super) fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let mut keys = Self::default();
        if let Some(text) = value.as_str() {
            keys.mode = Some(text.parse().map_err(|error| format!("{error}"))?);
            return Ok(keys);
        }
        let wrong = "`capsules` is a table, [capsules], or a text in quotes: on, shapes or off";
        for (key, value) in value.as_table().ok_or(wrong)? {
            keys.take_in(key.get_ref(), value.get_ref())?;
        }
        let CapsuleOptions { bytes_max, folder, .. } = keys.clone().resolve();
        if folder.bytes / FOLDER_CAPSULES_MIN < bytes_max {
            let needed = bytes_max.saturating_mul(FOLDER_CAPSULES_MIN);
            return Err(format!(
                "`folder_bytes_max` of [capsules] is {}, but capsules of `bytes_max` = {bytes_max} need {needed}",
                folder.bytes
            ));
        }
        Ok(keys)
    }

    fn take_in(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        if key == "mode" {
            let text = value.as_str().ok_or("`mode` of [capsules] needs a text in quotes")?;
            self.mode = Some(text.parse().map_err(|error| format!("{error}"))?);
            return Ok(());
        }
        let Some(Number { name, least, most, .. }) = NUMBERS.iter().find(|own| own.name == key)
        else {
            let names = NUMBERS.map(|number| number.name).join(", ");
            return Err(format!(
                "there is no setting `{key}` of [capsules]; those are mode, {names}"
            ));
        };
        let given = super::file::whole_number(value);
        let given = given.filter(|given| (*least..=*most).contains(given));
        let wrong = || format!("`{name}` of [capsules] needs a number from {least} to {most}");
        self.numbers.push((name, given.ok_or_else(wrong)?));
        Ok(())
    }

    /// These, and `file` where they say nothing.
    pub(super) fn over(self, file: Self) -> Self {
        let numbers = file.numbers.into_iter().chain(self.numbers).collect();
        Self { mode: self.mode.or(file.mode), numbers }
    }

    /// The settings.
    pub(super) fn resolve(self) -> CapsuleOptions {
        let mut options = CapsuleOptions::default();
        options.mode = self.mode.unwrap_or(options.mode);
        for (name, value) in self.numbers {
            let number = NUMBERS.iter().find(|number| number.name == name);
            match (number.expect("it was found before").of)(&mut options) {
                Place::Bytes(bytes) => *bytes = value,
                Place::Seconds(span) => *span = Duration::from_secs(value),
                Place::Count(count) => *count = usize::try_from(value).unwrap_or(usize::MAX),
            }
        }
        options
    }
}

impl CapsuleOptions {
    /// The mode; with its numbers if one is not the default.
    #[must_use]
    pub fn shown(&self) -> serde_json::Value {
        let default = Self { mode: self.mode, ..Self::default() };
        if *self == default {
            return self.mode.name().into();
        }
        let mut table = serde_json::Map::new();
        table.insert("mode".to_owned(), self.mode.name().into());
        let mut own = *self;
        for number in &NUMBERS {
            let value = match (number.of)(&mut own) {
                Place::Bytes(bytes) => *bytes,
                Place::Seconds(span) => span.as_secs(),
                Place::Count(count) => *count as u64,
            };
            table.insert(number.name.to_owned(), value.into());
        }
        table.into()
    }
}

/// The rows of the book: name, bounds, default.
#[cfg(test)]
pub(crate) fn rows() -> impl Iterator<Item = [String; 3]> {
    let mut options = CapsuleOptions::default();
    NUMBERS.iter().map(move |number| {
        let value = match (number.of)(&mut options) {
            Place::Bytes(bytes) => *bytes,
            Place::Seconds(span) => span.as_secs(),
            Place::Count(count) => *count as u64,
        };
        let bounds = format!("{} to {}", number.least, number.most);
        [format!("`{}`", number.name), bounds, value.to_string()]
    })
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    fn read(text: &str) -> Result<CapsuleOptions, String> {
        let table = DeTable::parse(text).unwrap();
        CapsuleKeys::read(table.get_ref()["capsules"].get_ref()).map(CapsuleKeys::resolve)
    }

    #[test]
    fn the_table_and_the_short_form_are_read_and_the_rest_refused() {
        assert_eq!(read("capsules = \"on\""), Ok(CapsuleOptions::default()));
        let shapes = read("capsules = \"shapes\"").unwrap();
        assert_eq!((shapes.mode, shapes.shown()), (CapsuleMode::Shapes, "shapes".into()));
        let all = "[capsules]\nmode = \"off\"\nbytes_max = 2048\nfolder_bytes_max = 1048576\nage_max_s = 60\n\
                   count_max = 1\n";
        let folder = Bounds { bytes: 1 << 20, age: Duration::from_secs(60), files: 1 };
        let want = CapsuleOptions { mode: CapsuleMode::Off, bytes_max: 2_048, folder };
        assert_eq!(read(all), Ok(want));
        assert_eq!(want.shown()["count_max"], 1);
        for (text, why) in [
            ("capsules = 1", "`capsules` is a table"),
            ("capsules = \"some\"", "`some` is not a mode of capsules"),
            ("[capsules]\nmode = 1", "needs a text"),
            ("[capsules]\ncount_max = 0", "from 1 to 10000"),
            ("[capsules]\nfolder_bytes_max = 1048576", "`bytes_max` = 16777216 need 33554432"),
            ("[capsules]\nsize = 1", "no setting `size` of [capsules]; those are mode, bytes_max"),
        ] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
    }
}
