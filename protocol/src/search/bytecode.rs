//! Bytecode: a program of the machine that was compiled before, in place of its text.

use super::SearchError;
use super::compile::{giving_grid, within_steps};
use crate::program::Ties;
use crate::solver::{CODE_BYTES_MAX, Code, MACHINE_VERSION};

/// Reads and verifies the bytes of a [compiled](super::compile()) program, which may come from anywhere. What runs is
/// what its text compiles to here: `steps` takes the place of its own limit.
///
/// # Errors
/// [`SearchError::BytecodeVersion`], [`SearchError::BytecodeLength`] and [`SearchError::Bytecode`] if they are no
/// program of this machine, [`SearchError::BytecodeTies`] if it breaks ties otherwise, [`SearchError::NotGrid`] and
/// [`SearchError::Steps`] as for a text.
///
/// ```
/// use gridpool_protocol::program::Ties;
/// use gridpool_protocol::search::{compile, from_bytecode};
/// let bytecode = compile("rot90 | hmirror", Ties::Cpython, 1).unwrap().to_bytes();
/// let solver = compile("O = hmirror(rot90(I))", Ties::Cpython, 100).unwrap();
/// assert_eq!(from_bytecode(&bytecode, Ties::Cpython, 100).unwrap(), solver);
/// let old = from_bytecode(&[0; 40], Ties::Cpython, 100).unwrap_err();
/// assert!(old.to_string().starts_with("the bytecode is for version 0 of the machine"));
/// ```
pub fn from_bytecode(bytes: &[u8], ties: Ties, steps: u32) -> Result<Code, SearchError> {
    within_steps(steps)?;
    // What another version means by the rest is not known.
    if let Some(version) = bytes.first().copied().filter(|version| *version != MACHINE_VERSION) {
        return Err(SearchError::BytecodeVersion { version });
    }
    if bytes.len() > CODE_BYTES_MAX {
        return Err(SearchError::BytecodeLength { bytes: bytes.len() });
    }
    let code = Code::from_bytes(bytes).map_err(SearchError::Bytecode)?;
    if code.ties() != ties {
        return Err(SearchError::BytecodeTies { made: code.ties(), wanted: ties });
    }
    giving_grid(code.with_step_limit(steps))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::search::compile;

    const STEPS: u32 = 77;
    const TEXTS: [&str; 5] = [
        "rot90 | hmirror",
        "O = replace(I, 1, 5)",
        "x1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)",
        "x1 = rbind(shift, UP)\nx2 = ofcolor(I, 3)\nO = fill(I, 4, x1(x2))",
        "O = power(rot90, multiply(width(I), 3))(I)",
    ];

    fn made(text: &str, steps: u32) -> Code {
        compile(text, Ties::Cpython, steps).expect("a program")
    }

    fn read(bytes: &[u8]) -> Result<Code, SearchError> {
        from_bytecode(bytes, Ties::Cpython, STEPS)
    }

    /// Bytes are refused, or a program that verifies and is said by them alone.
    fn are_refused_or_a_program(bytes: &[u8]) {
        let Ok(code) = read(bytes) else { return };
        code.verify().expect("a device takes it");
        assert!(code.gives().is_gridlike());
        let mut again = code.to_bytes();
        again[12..16].copy_from_slice(&bytes[12..16]);
        assert_eq!(again, bytes);
    }

    #[test]
    fn bytecode_is_the_program_of_its_text_whatever_its_own_limit_of_steps() {
        for text in TEXTS {
            for steps in [1, STEPS, 1_000_000] {
                let code = read(&made(text, steps).to_bytes()).expect("a program");
                assert_eq!(code, made(text, STEPS), "{text}");
                assert_eq!(code.hash(), made(text, STEPS).hash(), "{text}");
            }
        }
    }

    #[test]
    fn bytes_that_are_cut_or_have_a_flipped_bit_are_refused_or_a_program() {
        let mut refused = 0;
        for text in TEXTS {
            let bytes = made(text, 1).to_bytes();
            for length in 0..bytes.len() {
                assert!(read(&bytes[..length]).is_err(), "{text}: {length} bytes");
            }
            assert!(read(&[&*bytes, &[0]].concat()).is_err(), "{text}: a byte behind it");
            for bit in 0..8 * bytes.len() {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                refused += usize::from(read(&flipped).is_err());
                are_refused_or_a_program(&flipped);
            }
        }
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn what_is_no_bytecode_of_this_search_is_refused_in_words() {
        let bytes = made("O = replace(I, 1, 5)", 1).to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            read(&bytes).expect_err("no program").to_string()
        };
        let old = "the bytecode is for version 0 of the machine, and this build has 1: compile the text again with \
                   this build";
        assert_eq!(with(0, 0), old);
        let ties = "the bytecode is for ties lowest, and the search for cpython: compile the text with --ties cpython, \
                    or search with lowest";
        assert_eq!(with(1, 1), ties);
        let opcode = "the program is malformed at instruction 0: there is no such opcode; compile its text again with \
                      `gridpool compile`";
        assert_eq!(with(16, 255), opcode);
        let long = read(&[1; CODE_BYTES_MAX + 1]).expect_err("no program").to_string();
        assert_eq!(long, "the bytecode has 10001 bytes; a program has at most 10000");
        assert!(read(&[]).expect_err("no program").to_string().contains("its header is too short"));
        let number =
            crate::solver::compile_code("O = width(I)", Ties::Cpython, 1).expect("a program");
        let refused = read(&number.to_bytes()).expect_err("no grid");
        assert_eq!(refused, compile("O = width(I)", Ties::Cpython, 1).expect_err("no grid"));
        let steps = from_bytecode(&bytes, Ties::Cpython, 0).expect_err("no step");
        assert_eq!(steps, SearchError::Steps { steps: 0 });
    }

    proptest! {
        #[test]
        fn random_bytes_are_refused_or_a_program(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            text in 0..TEXTS.len(),
            at in any::<prop::sample::Index>(),
        ) {
            are_refused_or_a_program(&bytes);
            // Behind a header that says so many parts as there are.
            let mut program = made(TEXTS[text], 1).to_bytes();
            let at = 16 + at.index(program.len() - 16);
            let changed = program.len().min(at + bytes.len());
            program[at..changed].copy_from_slice(&bytes[..changed - at]);
            are_refused_or_a_program(&program);
        }
    }
}
