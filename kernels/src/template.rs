//! Templates as `gp_template` takes them: `kernels/cuda/machine/template.cuh`.

use gridpool_protocol::search::{CompiledTemplate, TemplateHole};
use gridpool_protocol::solver::{Constant, HolePlace, Kind};

/// Words of what is said of each hole, and of all: `HOLE_WORDS`.
const HOLE_WORDS: usize = 8;
/// Turns numbers so that their words order as they do: `TURN`.
const TURN: u32 = 1 << 31;
/// The same of both halves of a vector.
const TURN_VECTOR: u32 = 1 << 31 | 1 << 15;

/// The holes of a template and the programs that the kernel prepares.
#[derive(Clone, Debug)]
pub struct DeviceTemplate {
    /// `Search::holes`.
    pub holes: Vec<u32>,
    /// The bytes of the first program, then of those with each choice of an opcode.
    pub programs: Vec<Vec<u8>>,
}

impl DeviceTemplate {
    /// A template as the kernel takes it.
    #[must_use]
    pub fn new(template: &CompiledTemplate) -> Self {
        let count = template.holes().len();
        let mut holes = vec![0; HOLE_WORDS * (1 + count)];
        holes[0] = number(count);
        let mut programs = vec![template.program(0)];
        for (at, hole) in template.holes().enumerate() {
            let TemplateHole { choices, places, needed } = &hole;
            let is_opcode = hole.is_opcode();
            let (choices_at, places_at) = (holes.len(), holes.len() + choices.len());
            for choice in *choices {
                holes.push(match is_opcode {
                    true => {
                        programs.push(template.with_opcode(places, *choice));
                        number(programs.len() - 1)
                    }
                    false => register_word(template, places.first(), *choice),
                });
            }
            holes.extend(places.iter().map(|place| match place {
                // Behind the input.
                HolePlace::Constant(at) => number(at + 1),
                HolePlace::Instruction(at) => number(*at),
            }));
            let first = holes.get(places_at).map_or(0, |place| *place as usize);
            let of = [
                *needed,
                choices.len(),
                places.len(),
                is_opcode.into(),
                choices_at,
                places_at,
                first,
            ];
            let head = holes[HOLE_WORDS * (1 + at)..].iter_mut();
            head.zip(of).for_each(|(word, of)| *word = number(of));
        }
        Self { holes, programs }
    }
}

/// A constant as registers hold it.
fn register_word(template: &CompiledTemplate, place: Option<&HolePlace>, word: u32) -> u32 {
    let kind = match place {
        Some(HolePlace::Constant(at)) => template.first().constants()[*at].kind(),
        Some(HolePlace::Instruction(_)) | None => Kind::Number,
    };
    match Constant::from_word(&kind, word) {
        // Row and column change places.
        Some(Constant::Vector(_)) => word.rotate_left(16) ^ TURN_VECTOR,
        Some(Constant::Flag(_) | Constant::Number(_)) | None => word ^ TURN,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a template is small")
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;
    use gridpool_protocol::search::Template;
    use gridpool_protocol::solver::Opcode;

    use super::*;

    #[test]
    fn holes_are_laid_out_as_the_kernel_reads_them() {
        let text = "x = shift(asindices(I), ?d in [UP, DOWN])\nO = ?f in [rot90, rot180](fill(I, ?a in [3, 4, 5], x))";
        let template = Template::parse(text).unwrap().unwrap();
        let (compiled, _) = CompiledTemplate::compile(&template, Ties::Cpython, 100).unwrap();
        let DeviceTemplate { holes, programs } = DeviceTemplate::new(&compiled);
        assert_eq!((holes[0], programs.len()), (3, 3));
        let of = |hole: usize| &holes[HOLE_WORDS * (1 + hole)..][..HOLE_WORDS];
        let listed = |hole: usize| {
            let [_, choices, places, _, choices_at, places_at, ..] = *of(hole) else { panic!() };
            let words = |at: u32, count: u32| holes[at as usize..][..count as usize].to_vec();
            (words(choices_at, choices), words(places_at, places))
        };
        // The opcode changes first. Instructions: asindices, shift, fill, rot90, return.
        assert_eq!(of(0)[..4], [3, 2, 1, 1]);
        assert_eq!(listed(0), (vec![1, 2], vec![3]));
        assert_eq!(of(1)[..4], [2, 3, 1, 0]);
        assert_eq!(listed(1).0, [0x8000_0003, 0x8000_0004, 0x8000_0005]);
        assert_eq!(of(2)[..4], [1, 2, 1, 0]);
        assert_eq!(listed(2).0, [0x7fff_8000, 0x8001_8000]);
        let registers = [listed(1).1[0], listed(2).1[0]];
        assert!(registers == [1, 2] || registers == [2, 1], "{registers:?}");
        let opcode = |program: &[u8]| program[16 + 3 * 8];
        let opcodes: Vec<_> = programs.iter().map(|program| opcode(program)).collect();
        assert_eq!(opcodes, [Opcode::Rot90, Opcode::Rot90, Opcode::Rot180].map(|op| op as u8));
    }
}
