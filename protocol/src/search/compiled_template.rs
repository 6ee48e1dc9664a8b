//! Templates as programs: the program of the first choices, and what the others write into it.
//!
//! ```text
//! [ bytes of the program: u32 ] [ holes: u32 ] [ the program, padded to 8 bytes ]
//! for each hole: [ choices: u32 ] [ places: u32 ] [ choices: u32 each ] [ places: u32 each ]
//! ```
//!
//! All numbers are little-endian. A place is the byte of the program at which a choice is written: a constant's word,
//! or the opcode of an instruction outside of loops. The first hole changes first: the program needs it last, so what
//! neighbouring programs have in common is at their start.

use std::ops::Range;

use super::{PROGRAM_ALIGN, SearchError, Template};
use crate::limits::{TEMPLATE_BYTES_MAX, TEMPLATE_CHOICES_MAX, TEMPLATE_HOLES_MAX};
use crate::program::Ties;
use crate::solver::{
    self, Code, Constant, HEADER_BYTES, HolePlace, INSTRUCTION_BYTES, Instruction, Opcode,
    Primitive,
};

/// A template whose programs have one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledTemplate {
    first: Code,
    /// The bytes of `first`.
    bytes: Vec<u8>,
    holes: Vec<CompiledHole>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CompiledHole {
    choices: Vec<u32>,
    places: Vec<u32>,
}

/// A hole of a template.
#[derive(Clone, Debug)]
pub struct TemplateHole<'t> {
    /// Words of constants, or opcodes.
    pub choices: &'t [u32],
    /// Where they are written: all constants or all instructions.
    pub places: Vec<HolePlace>,
    /// The first instruction outside of loops and branches that needs it, or that begins a loop or a branch in which
    /// it is needed; the last instruction if none does.
    pub needed: usize,
}

impl TemplateHole<'_> {
    /// Whether it stands for opcodes, and not for constants.
    #[must_use]
    pub fn is_opcode(&self) -> bool {
        matches!(self.places.first(), Some(HolePlace::Instruction(_)))
    }
}

fn malformed<T>(what: &'static str) -> Result<T, SearchError> {
    Err(SearchError::CompiledTemplate { what })
}

impl CompiledTemplate {
    /// Compiles a template. `None` if its programs are not known to be right and alike: each is to be compiled. Also
    /// gives the template's holes in their order, the one that changes last first: [`Template::in_order`].
    ///
    /// ```
    /// use gridpool_protocol::program::Ties;
    /// use gridpool_protocol::search::{CompiledTemplate, Template, compile};
    /// let text = "O = ?f:Grid->Grid(replace(I, ?a:color, ?b:color))";
    /// let template = Template::parse(text).unwrap().unwrap();
    /// // `identity` is no instruction, so it stands alone.
    /// let [alone, others] = template.parts().try_into().unwrap();
    /// assert_eq!((alone.count(), others.count()), (100, 1_300));
    /// let (compiled, order) = CompiledTemplate::compile(&others, Ties::Cpython, 1_000).unwrap();
    /// // `f` is needed last, so it changes first.
    /// let others = others.in_order(order);
    /// let (choice, text) = others.text(300);
    /// assert_eq!(choice, "f=rot180,a=2,b=3");
    /// let program = compile(&text, Ties::Cpython, 1_000).unwrap();
    /// assert_eq!(compiled.program(300), program.to_bytes());
    /// ```
    #[must_use]
    pub fn compile(template: &Template, ties: Ties, steps: u32) -> Option<(Self, Vec<usize>)> {
        let (text, holes) = template.named()?;
        let (numbers, holes): (Vec<usize>, Vec<_>) = holes.into_iter().unzip();
        let choices: usize = holes.iter().map(|hole| hole.words.len()).sum();
        if holes.len() > TEMPLATE_HOLES_MAX || choices > TEMPLATE_CHOICES_MAX {
            return None;
        }
        let text = match solver::is_solver(&text) {
            true => text,
            false => format!("O = I | {}", text.trim()),
        };
        let (first, places) = solver::compile_holes(&text, &holes, ties, steps).ok()?;
        if !first.gives().is_gridlike() {
            return None;
        }
        // What a text is refused for, a template is not compiled for: each says so where it stands.
        if template.singles().any(|text| super::compile(&text, ties, steps).is_err()) {
            return None;
        }
        let with_places = |number: usize| {
            let of_it = places.iter().filter(|(hole, _)| *hole == number);
            of_it.map(|(_, place)| *place).collect::<Vec<_>>()
        };
        let mut order: Vec<usize> = (0..holes.len()).collect();
        order.sort_by_key(|number| needed(&first, &with_places(*number)));
        let compiled = order.iter().rev().map(|number| CompiledHole {
            choices: holes[*number].choices.values(),
            places: with_places(*number).iter().map(|place| offset(&first, *place)).collect(),
        });
        let compiled = compiled.collect();
        let this = Self { bytes: first.to_bytes(), first, holes: compiled };
        this.check().ok()?;
        // A hole of one word never changes.
        let alone = (0..template.holes()).filter(|hole| !numbers.contains(hole));
        Some((this, alone.chain(order.into_iter().map(|at| numbers[at])).collect()))
    }

    /// Programs that it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        let choices = self.holes.iter().map(|hole| hole.choices.len() as u64);
        choices.fold(1, u64::saturating_mul)
    }

    /// The numbers of a job's programs, of which this is the first.
    ///
    /// # Errors
    /// [`SearchError::Choices`] if it stands for fewer.
    pub fn numbers(&self, first: u32, programs: usize) -> Result<Range<u32>, SearchError> {
        let end = u64::from(first) + programs as u64;
        match u32::try_from(end).ok().filter(|_| end <= self.count()) {
            Some(end) => Ok(first..end),
            None => Err(SearchError::Choices { first, end, count: self.count() }),
        }
    }

    /// The program of the first choices.
    #[must_use]
    pub fn first(&self) -> &Code {
        &self.first
    }

    /// The bytes of the program of a number below the count, in the order of [`Template::text`].
    #[must_use]
    pub fn program(&self, number: u64) -> Vec<u8> {
        let (mut bytes, mut rest) = (self.bytes.clone(), number);
        for CompiledHole { choices, places } in &self.holes {
            let count = choices.len() as u64;
            let choice = choices[usize::try_from(rest % count).unwrap_or(0)];
            rest /= count;
            places.iter().for_each(|place| self.write(&mut bytes, *place, choice));
        }
        bytes
    }

    /// The same as a program.
    ///
    /// # Panics
    /// Never: each choice has been checked.
    #[must_use]
    pub fn code(&self, number: u64) -> Code {
        Code::from_bytes(&self.program(number)).expect("each choice has been checked")
    }

    /// Its holes, from the one that changes first.
    pub fn holes(&self) -> impl ExactSizeIterator<Item = TemplateHole<'_>> {
        self.holes.iter().map(|CompiledHole { choices, places }| {
            let places: Vec<_> = places.iter().filter_map(|place| self.place(*place)).collect();
            let needed = needed(&self.first, &places);
            TemplateHole { choices, places, needed }
        })
    }

    /// The bytes of the first program with another opcode at these places.
    #[must_use]
    pub fn with_opcode(&self, places: &[HolePlace], opcode: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for place in places {
            self.write(&mut bytes, offset(&self.first, *place), opcode);
        }
        bytes
    }

    /// Writes a choice at a place.
    fn write(&self, bytes: &mut [u8], place: u32, choice: u32) {
        let at = place as usize;
        let word = choice.to_le_bytes();
        match self.place(place) {
            Some(HolePlace::Constant(_)) => bytes[at..at + 4].copy_from_slice(&word),
            Some(HolePlace::Instruction(_)) => bytes[at] = word[0],
            None => {}
        }
    }

    /// What is at a byte of the program.
    fn place(&self, byte: u32) -> Option<HolePlace> {
        let from_first = (byte as usize).checked_sub(HEADER_BYTES)?;
        let instructions = INSTRUCTION_BYTES * self.first.instructions().len();
        if from_first < instructions {
            let is_opcode = from_first.is_multiple_of(INSTRUCTION_BYTES);
            return is_opcode.then_some(HolePlace::Instruction(from_first / INSTRUCTION_BYTES));
        }
        let from_first = from_first - instructions;
        let is_constant =
            from_first.is_multiple_of(4) && from_first / 4 < self.first.constants().len();
        is_constant.then_some(HolePlace::Constant(from_first / 4))
    }

    /// Checks that each choice makes a program. A choice changes what no other does, and every rule of a program is
    /// about one instruction or constant, and the kinds of registers: so all choices together are a program too.
    fn check(&self) -> Result<(), SearchError> {
        let (mut written, mut before, mut prepared) = (Vec::new(), usize::MAX, 1);
        let outermost = outermost(&self.first);
        for (at, hole) in self.holes().enumerate() {
            let TemplateHole { choices, places, needed } = &hole;
            if choices.is_empty() {
                return malformed("a hole has no choice");
            }
            if (1..choices.len()).any(|at| choices[..at].contains(&choices[at])) {
                return malformed("a hole has a choice twice");
            }
            if places.len() != self.holes[at].places.len() {
                return malformed("a choice is written where there is no constant and no opcode");
            }
            if *needed > before {
                return malformed("its holes do not stand in the order in which they change");
            }
            before = *needed;
            let kind = |place: &HolePlace| std::mem::discriminant(place);
            if places.iter().any(|place| kind(place) != kind(&places[0])) {
                return malformed("a hole is a constant and an opcode");
            }
            for place in places {
                if written.contains(place) {
                    return malformed("two choices are written at one place");
                }
                written.push(*place);
            }
            if hole.is_opcode() {
                prepared += choices.len();
                if prepared * self.bytes.len() > TEMPLATE_BYTES_MAX as usize {
                    return malformed("the programs of its opcodes are too large together");
                }
            }
            let takes = |place: &HolePlace| match place {
                HolePlace::Constant(at) => {
                    let kind = self.first.constants()[*at].kind();
                    choices.iter().all(|choice| Constant::from_word(&kind, *choice).is_some())
                }
                // How a device runs a loop may depend on all opcodes in it.
                HolePlace::Instruction(at) => {
                    let op = self.first.instructions()[*at].op;
                    Primitive::of(op).is_some() && !outermost[*at].1
                }
            };
            let takes_opcode = |choice: &u32| self.takes_opcode(places, *choice);
            let are_programs = !hole.is_opcode() || choices.iter().all(takes_opcode);
            if !places.iter().all(takes) || !are_programs {
                return malformed("a choice makes no program");
            }
        }
        Ok(())
    }

    /// Whether the instructions at these places may have this opcode.
    fn takes_opcode(&self, places: &[HolePlace], choice: u32) -> bool {
        let of = |byte: u8| Opcode::from_byte(byte).and_then(Primitive::of);
        u8::try_from(choice).ok().and_then(of).is_some()
            && Code::from_bytes(&self.with_opcode(places, choice)).is_ok()
    }

    /// Its bytes: see the module's text.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let put = |bytes: &mut Vec<u8>, of: &[u32]| {
            bytes.extend(of.iter().flat_map(|word| word.to_le_bytes()));
        };
        put(&mut bytes, &[number(self.bytes.len()), number(self.holes.len())]);
        bytes.extend(&self.bytes);
        bytes.resize(bytes.len().next_multiple_of(PROGRAM_ALIGN), 0);
        for CompiledHole { choices, places } in &self.holes {
            put(&mut bytes, &[number(choices.len()), number(places.len())]);
            put(&mut bytes, choices);
            put(&mut bytes, places);
        }
        bytes.resize(bytes.len().next_multiple_of(PROGRAM_ALIGN), 0);
        bytes
    }

    /// Reads and checks a template, perhaps with zeros behind it.
    ///
    /// # Errors
    /// [`SearchError::CompiledTemplate`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SearchError> {
        const ENDS: SearchError = SearchError::CompiledTemplate { what: "it ends too early" };
        let mut rest = bytes;
        let [length, holes] =
            words(&mut rest, 2).and_then(|head| head.try_into().ok()).ok_or(ENDS)?;
        let (length, holes) = (length as usize, holes as usize);
        if holes > TEMPLATE_HOLES_MAX {
            return malformed("it has too many holes");
        }
        let padded = length.next_multiple_of(PROGRAM_ALIGN);
        let (padded, behind) = rest.split_at_checked(padded).ok_or(ENDS)?;
        let (program, padding) = padded.split_at(length);
        rest = behind;
        let first = Code::from_bytes(program)
            .map_err(|_malformed| SearchError::CompiledTemplate { what: "its program is none" })?;
        let (mut read, mut left) = (Vec::with_capacity(holes), TEMPLATE_CHOICES_MAX);
        for _ in 0..holes {
            let [choices, places] =
                words(&mut rest, 2).and_then(|head| head.try_into().ok()).ok_or(ENDS)?;
            left = match left.checked_sub(choices as usize) {
                Some(left) => left,
                None => return malformed("it has too many choices"),
            };
            if places as usize > first.instructions().len() + first.constants().len() {
                return malformed("it has more places than the program");
            }
            let choices = words(&mut rest, choices as usize).ok_or(ENDS)?;
            let places = words(&mut rest, places as usize).ok_or(ENDS)?;
            read.push(CompiledHole { choices, places });
        }
        if rest.len() >= PROGRAM_ALIGN || rest.iter().chain(padding).any(|byte| *byte != 0) {
            return malformed("something is behind it");
        }
        let this = Self { first, bytes: program.to_vec(), holes: read };
        this.check()?;
        Ok(this)
    }
}

/// Takes numbers off the front.
fn words(rest: &mut &[u8], count: usize) -> Option<Vec<u32>> {
    let (taken, behind) = rest.split_at_checked(4 * count)?;
    *rest = behind;
    Some(taken.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// Of each instruction, the outermost loop or branch that it is in, by its first instruction, or itself; and whether it
/// is in a loop.
fn outermost(code: &Code) -> Vec<(usize, bool)> {
    let (mut begun, mut loops, mut branches) = (0, 0_usize, 0_usize);
    let of = |(at, instruction): (usize, &Instruction)| {
        if loops + branches == 0 {
            begun = at;
        }
        loops += usize::from(instruction.op.begins_loop());
        branches += usize::from(instruction.op == Opcode::If);
        let is_in_loop = loops > 0;
        loops -= usize::from(instruction.op == Opcode::Next);
        branches -= usize::from(instruction.op == Opcode::EndIf);
        (begun, is_in_loop)
    };
    code.instructions().iter().enumerate().map(of).collect()
}

/// The first instruction outside of loops and branches that needs what is at these places; see
/// [`TemplateHole::needed`].
fn needed(code: &Code, places: &[HolePlace]) -> usize {
    let outermost = outermost(code);
    let needs = |at: usize, instruction: &Instruction| {
        places.iter().any(|place| match place {
            HolePlace::Instruction(of) => *of == at,
            // Register 0 is the input's.
            HolePlace::Constant(of) => {
                instruction.from.iter().any(|from| usize::from(*from) == of + 1)
            }
        })
    };
    let mut all = code.instructions().iter().enumerate();
    let found = all.find(|(at, instruction)| needs(*at, instruction));
    found.map_or(outermost.len() - 1, |(at, _)| outermost[at].0)
}

/// The byte of a place in a program.
fn offset(code: &Code, place: HolePlace) -> u32 {
    let constants = HEADER_BYTES + INSTRUCTION_BYTES * code.instructions().len();
    number(match place {
        HolePlace::Constant(at) => constants + 4 * at,
        HolePlace::Instruction(at) => HEADER_BYTES + INSTRUCTION_BYTES * at,
    })
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a program is small")
}

#[cfg(test)]
mod tests;
