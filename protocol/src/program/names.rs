//! Names to rows of the table, and names that are close to a wrong one.

use super::error::ProgramError;
use super::parse::Call;
use super::table::{OPS, OpSpec, REFUSED};

/// Whether it is the name of an op.
pub(super) fn is_op(name: &str) -> bool {
    OPS.iter().any(|spec| spec.name == name)
}

/// The row of an op, or a sentence on what to write instead.
pub(super) fn lookup(text: &str, call: &Call) -> Result<&'static OpSpec, ProgramError> {
    if let Some(spec) = OPS.iter().find(|spec| spec.name == call.name) {
        return Ok(spec);
    }
    if let Some((_, sentence)) = REFUSED.iter().find(|(name, _)| *name == call.name) {
        return Err(ProgramError::new(text, call.span.clone(), (*sentence).to_owned()));
    }
    let message = format!("there is no op `{}`", call.name);
    let close = close_names(&call.name);
    let help = if close.is_empty() {
        "`gridpool ops` lists the ops".to_owned()
    } else {
        format!("close to it: {}", close.join(", "))
    };
    Err(ProgramError::new(text, call.span.clone(), message).with_help(help))
}

/// Names at a small edit distance, or that share a prefix, nearest first.
fn close_names(name: &str) -> Vec<&'static str> {
    let lower = name.to_lowercase();
    let mut close: Vec<(usize, &str)> = OPS
        .iter()
        .map(|spec| (edit_distance(&lower, spec.name), spec.name))
        .filter(|&(distance, candidate)| {
            distance <= 2.max(candidate.len() / 3)
                || (lower.len() >= 3 && candidate.starts_with(&lower))
        })
        .collect();
    close.sort_unstable();
    close.into_iter().map(|(_, name)| name).take(4).collect()
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
