//! Suggestions for a misspelt name.

/// The largest number of suggestions.
const SUGGESTED_MAX: usize = 4;
/// The shortest prefix that may match.
const PREFIX_MIN: usize = 3;

/// The names at a small edit distance, about that of the nearest, or that begin with the text. The nearest comes
/// first.
pub fn names<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong = wrong.to_lowercase();
    let distances = names.into_iter().map(|name| {
        let lower = name.to_lowercase();
        let is_begun = wrong.len() >= PREFIX_MIN && lower.starts_with(&wrong);
        (strsim::osa_distance(&wrong, &lower), is_begun, name)
    });
    let mut close: Vec<_> = distances.collect();
    close.sort_unstable();
    // Short names are all near each other.
    let allowed = match wrong.chars().count() {
        0 | 1 => 0,
        2..=5 => 1,
        length => length / 3,
    };
    let nearest = close.first().map_or(0, |&(distance, ..)| distance);
    close.retain(|&(distance, is_begun, _)| {
        is_begun || distance <= allowed && distance <= nearest + 1
    });
    close.into_iter().map(|(.., name)| name).take(SUGGESTED_MAX).collect()
}

/// What to write instead: the names that are close, or else all.
#[must_use]
pub fn suggestion(wrong: &str, known: &[&str]) -> String {
    match (names(wrong, known.iter().copied()).as_slice(), known) {
        ([], []) => "there is none".to_owned(),
        ([], known) => format!("there is {}", known.join(", ")),
        (close, _) => format!("close to it: {}", close.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first_and_a_far_one_not_at_all() {
        let all = ["rot90", "rot180", "fill", "underfill"];
        assert_eq!(names("rot9", all), ["rot90"]);
        assert_eq!(names("FIL", all), ["fill"]);
        assert_eq!(names("under", all), ["underfill"]);
        assert_eq!(names("flil", all), ["fill"]);
        assert_eq!(names("rotate90", all), ["rot90"; 0]);
        for far in ["canvas", "foo", "a", "pill9"] {
            assert_eq!(names(far, ["box", "T", "I"].into_iter().chain(all)), [""; 0], "{far}");
        }
    }
}
