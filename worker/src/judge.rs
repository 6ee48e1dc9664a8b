//! The role that recomputes verdicts of a search by the reference, for `gridpool search --verify`: reads requests as
//! lines of JSON, and answers each in a line.

use std::io::{self, BufRead, Write};

use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::program::unhex;
use gridpool_protocol::search::judge::{JudgePair, JudgeRequest, Judged};
use gridpool_protocol::search::{CellScore, PROGRAM_ALIGN, PairStatus};
use gridpool_protocol::solver::Code;

/// The exit code of a request that cannot be understood, and of a failing standard input or output.
#[must_use]
pub fn exit_code(_error: &io::Error) -> u8 {
    exit::INTERNAL
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Serves until the input ends.
///
/// # Errors
/// What is wrong with a request; else the error of standard input or output.
pub fn serve(input: impl BufRead, out: &mut dyn Write) -> io::Result<()> {
    let (mut pairs, mut machine) = (SearchPairs::default(), Machine::default());
    for line in input.lines() {
        let request = serde_json::from_str(&line?);
        match request.map_err(|error| wrong(format!("a request cannot be understood: {error}")))? {
            JudgeRequest::Pairs(given) => pairs = packed(&given)?,
            JudgeRequest::Run { program, pair } => {
                let judged = verdict(&mut machine, &pairs, &program, pair)?;
                let text = serde_json::to_string(&judged).map_err(io::Error::other)?;
                writeln!(out, "{text}")?;
                out.flush()?;
            }
        }
    }
    Ok(())
}

fn verdict(
    machine: &mut Machine,
    pairs: &SearchPairs,
    program: &str,
    pair: usize,
) -> io::Result<Judged> {
    if pair >= pairs.len() {
        return Err(wrong("there is no such pair"));
    }
    let bytes = unhex(program);
    let bytes = bytes.ok_or_else(|| wrong("the program is not in hexadecimal digits"))?;
    let (status, score) = match Code::from_padded(&bytes, PROGRAM_ALIGN) {
        Ok(code) => judge(machine, &code, pairs, pair),
        Err(_) => (PairStatus::NoProgram, CellScore::default()),
    };
    Ok(Judged { status: status.byte(), score: score.number() })
}

/// The pairs as the reference takes them.
fn packed(given: &[JudgePair]) -> io::Result<SearchPairs> {
    let (mut shapes, mut cells) = (Vec::new(), Vec::new());
    for grid in given.iter().flat_map(|pair| [&pair.input, &pair.output]) {
        let side = |length: usize| u8::try_from(length).ok();
        let width = grid.first().map_or(0, Vec::len);
        let shape = side(grid.len()).zip(side(width));
        let is_even = grid.iter().all(|row| row.len() == width);
        let Some((h, w)) = shape.filter(|_| is_even) else {
            return Err(wrong("a grid has rows of different lengths"));
        };
        shapes.push([h, w]);
        cells.extend(grid.iter().flatten());
    }
    Ok(SearchPairs::new(&shapes, &cells))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::{Ties, hex};
    use gridpool_protocol::search::compile;

    use super::*;

    fn answers(requests: &[JudgeRequest]) -> io::Result<String> {
        let lines: Vec<_> =
            requests.iter().map(|request| serde_json::to_string(request).unwrap()).collect();
        let mut out = Vec::new();
        serve(lines.join("\n").as_bytes(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn each_request_has_its_verdict() {
        let pair = JudgePair { input: vec![vec![1, 2]], output: vec![vec![1], vec![2]] };
        let program = |text| hex(&compile(text, Ties::Cpython, 100).unwrap().to_bytes());
        let run = |text| JudgeRequest::Run { program: program(text), pair: 0 };
        let odd = JudgeRequest::Run { program: "00".to_owned(), pair: 0 };
        let got = answers(&[JudgeRequest::Pairs(vec![pair]), run("rot90"), run("identity"), odd]);
        let want = "{\"status\":0,\"score\":32770}\n{\"status\":200,\"score\":1}\n\
                    {\"status\":201,\"score\":0}\n";
        assert_eq!(got.unwrap(), want);
    }

    #[test]
    fn what_is_no_request_ends_it_with_a_sentence() {
        let beyond = JudgeRequest::Run { program: String::new(), pair: 0 };
        assert!(answers(&[beyond]).unwrap_err().to_string().contains("no such pair"));
        let pair = JudgePair { input: vec![vec![1]], output: vec![vec![1]] };
        let odd = JudgeRequest::Run { program: "+1".to_owned(), pair: 0 };
        let error = answers(&[JudgeRequest::Pairs(vec![pair]), odd]).unwrap_err();
        assert!(error.to_string().contains("hexadecimal digits"), "{error}");
        let error = serve("{".as_bytes(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("cannot be understood"));
    }
}
