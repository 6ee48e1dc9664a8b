//! Names of inputs. Two inputs never share a name, unless one file is named twice. May not read anything.

use std::collections::BTreeMap;
use std::path::Path;

/// A name that can grow: the parts of a path, of which it shows the last ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    parts: Vec<String>,
    said: usize,
}

impl Name {
    /// A name that cannot grow, such as a path as typed.
    pub(super) fn fixed(name: String) -> Self {
        Self { parts: vec![name], said: 1 }
    }

    /// The task in a file of a directory: the file's name without `.json`.
    pub(super) fn of_file(path: &Path) -> Self {
        Self { parts: parts(&path.with_extension("")), said: 1 }
    }

    /// The task under a key in a file of many.
    pub(super) fn under(file: &Path, key: String) -> Self {
        let mut parts = parts(file);
        parts.push(key);
        Self { parts, said: 1 }
    }

    fn text(&self) -> String {
        let said = &self.parts[self.parts.len() - self.said..];
        // The root is a part by itself.
        said.join("/").replacen("//", "/", usize::from(said[0] == "/"))
    }

    fn can_grow(&self) -> bool {
        self.said < self.parts.len()
    }
}

fn parts(path: &Path) -> Vec<String> {
    path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The texts of all names. Equal names show more of their paths until they differ; if they stay equal, one
/// file is named twice.
pub(super) fn distinct(mut names: Vec<Name>) -> Vec<String> {
    loop {
        let texts: Vec<String> = names.iter().map(Name::text).collect();
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        for text in &texts {
            *times.entry(text).or_default() += 1;
        }
        let mut grown = false;
        for (name, text) in names.iter_mut().zip(&texts) {
            if times[text.as_str()] > 1 && name.can_grow() {
                name.said += 1;
                grown = true;
            }
        }
        if !grown {
            return texts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Name {
        Name::of_file(Path::new(path))
    }

    fn key(path: &str, key: &str) -> Name {
        Name::under(Path::new(path), key.to_owned())
    }

    #[test]
    fn names_that_differ_stay_short() {
        let names = vec![file("train/a.json"), file("/eval/b.c.json"), key("all.json", "x/y")];
        assert_eq!(distinct(names), ["a", "b.c", "x/y"]);
    }

    #[test]
    fn equal_names_show_more_of_their_paths_until_they_differ() {
        let names = vec![
            file("one/train/a.json"),
            file("two/train/a.json"),
            file("two/train/b.json"),
            file("/c.json"),
            file("c.json"),
            key("all.json", "d"),
            Name::fixed("d".to_owned()),
        ];
        let want = ["one/train/a", "two/train/a", "b", "/c", "c", "all.json/d", "d"];
        assert_eq!(distinct(names), want);
    }

    #[test]
    fn one_file_named_twice_keeps_one_name() {
        let names = vec![file("t/a.json"), file("t/a.json"), file("t/b.json")];
        assert_eq!(distinct(names), ["t/a", "t/a", "b"]);
        let typed = || Name::fixed("x.npy".to_owned());
        assert_eq!(distinct(vec![typed(), typed()]), ["x.npy", "x.npy"]);
    }
}
