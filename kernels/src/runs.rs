//! Runs of listed programs that begin alike: what `gp_search` makes of them is in `kernels/cuda/machine/listed.cuh`.

use gridpool_protocol::solver::{Code, Instruction, Opcode};

/// Most programs of a run: `RUN_MAX` of the kernel.
pub const RUN_MAX: usize = 32;
/// Most words that the code and the registers of a program may have in an arena, if it is to run with others.
const WORDS_MAX: usize = 512;

/// The order in which programs run, and what they have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The programs by their numbers, those of a run behind each other.
    pub order: Vec<u32>,
    /// For each of `order`: instructions that it has in common with the one before, which begin no run.
    pub shared: Vec<u32>,
    /// Where each run starts in `order`, and its end.
    pub starts: Vec<u32>,
}

impl Runs {
    /// Runs of at most so many programs. In `order`, those that begin alike stand beside each other: [`key`] sorts
    /// them. `common` has what [`common`] says of each and the one before; nothing of the first.
    ///
    /// # Panics
    /// If it has not so many.
    #[must_use]
    pub fn new(order: Vec<u32>, common: &[usize], most: usize) -> Self {
        assert_eq!(common.len(), order.len().saturating_sub(1), "one for each but the first");
        let (mut shared, mut starts) = (Vec::with_capacity(order.len()), Vec::new());
        let mut length = 0;
        for at in 0..order.len() {
            let common = at.checked_sub(1).map_or(0, |before| common[before]);
            let goes_on = common > 0 && length < most.min(RUN_MAX);
            if !goes_on {
                starts.push(number(at));
                length = 0;
            }
            shared.push(if goes_on { number(common) } else { 0 });
            length += 1;
        }
        starts.push(number(order.len()));
        Self { order, shared, starts }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Programs that go on from what another has computed.
    #[must_use]
    pub fn sharing(&self) -> usize {
        self.order.len() - self.count()
    }
}

/// Programs in the order of their keys stand beside those that they have most in common with.
#[must_use]
pub fn key(code: &Code) -> Vec<u8> {
    let mut key = Vec::with_capacity(12 * code.instructions().len());
    for Instruction { op, to, from, immediate } in code.instructions() {
        key.push(*op as u8);
        for register in [to].into_iter().chain(from) {
            match operand(code, *register) {
                Operand::Register(number) => key.extend(number.to_be_bytes()),
                Operand::Constant(word) => key.extend(word.to_be_bytes()),
            }
        }
        key.extend(immediate.to_be_bytes());
    }
    key
}

/// What an instruction reads or writes, whatever the number of constants before it.
#[derive(PartialEq, Eq)]
enum Operand {
    /// The input is 0.
    Register(u16),
    Constant(u32),
}

fn operand(code: &Code, register: u8) -> Operand {
    let (register, constants) = (usize::from(register), code.constants().len());
    match register.checked_sub(1).and_then(|at| code.constants().get(at)) {
        Some(constant) => Operand::Constant(constant.word()),
        None => Operand::Register(u16::try_from(register.saturating_sub(constants)).unwrap_or(0)),
    }
}

/// Words of a checkpoint at most: `CHECKPOINTS_WORDS` of the kernel, which are for all of them.
const CHECKPOINT_WORDS_MAX: usize = 256;

/// Whether there is no room for a program and others in an arena.
fn is_large(code: &Code) -> bool {
    // A checkpoint has a head of four words.
    words(code) > WORDS_MAX || 4 + 2 * code.registers().next_multiple_of(2) > CHECKPOINT_WORDS_MAX
}

/// Words of an arena that a program takes before its values.
fn words(code: &Code) -> usize {
    2 * code.registers() + 4 * code.instructions().len() + code.kinds().len()
}

/// The instructions that two programs begin with, up to one outside of loops and branches. 0 if ties or steps count
/// otherwise, or if one is too large to run with others.
#[must_use]
pub fn common(one: &Code, other: &Code) -> usize {
    if is_large(one)
        || is_large(other)
        || (one.ties(), one.step_limit()) != (other.ties(), other.step_limit())
    {
        return 0;
    }
    let both = one.instructions().len().min(other.instructions().len());
    let mut done = 0;
    loop {
        let end = end_of(one, done);
        // The last instruction returns.
        if end >= both || !(done..end).all(|at| are_same(one, other, at)) {
            return done;
        }
        done = end;
    }
}

/// Where the next instruction outside of loops and branches is.
fn end_of(code: &Code, at: usize) -> usize {
    let target = |at: usize| code.instructions().get(at).map_or(at, |of| usize::from(of.immediate));
    match code.instructions().get(at) {
        Some(of) if of.op.begins_loop() => target(at) + 1,
        Some(of) if of.op == Opcode::If => target(target(at)) + 1,
        Some(_) | None => at + 1,
    }
}

fn are_same(one: &Code, other: &Code, at: usize) -> bool {
    let (a, b) = (&one.instructions()[at], &other.instructions()[at]);
    let registers = |of: &Instruction| [of.to, of.from[0], of.from[1], of.from[2], of.from[3]];
    let same =
        |(a, b): (u8, u8)| operand(one, a) == operand(other, b) && one.kind(a) == other.kind(b);
    (a.op, a.immediate) == (b.op, b.immediate)
        && registers(a).into_iter().zip(registers(b)).all(same)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a chunk has few programs")
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;
    use gridpool_protocol::solver::Solver;

    use super::*;

    fn runs(texts: &[&str], most: usize) -> Runs {
        let code = |text: &&str| Solver::compile(text, Ties::Cpython).unwrap().code().clone();
        let codes: Vec<_> = texts.iter().map(code).collect();
        let mut order: Vec<u32> = (0..number(codes.len())).collect();
        order.sort_by_cached_key(|at| key(&codes[*at as usize]));
        let code = |at: u32| &codes[at as usize];
        let common: Vec<_> =
            order.windows(2).map(|both| common(code(both[0]), code(both[1]))).collect();
        Runs::new(order, &common, most)
    }

    #[test]
    fn programs_that_begin_alike_run_together_whatever_their_constants() {
        let texts = [
            "x = rot90(I)\ny = hmirror(x)\nO = replace(y, 1, 2)",
            "O = vmirror(I)",
            "x = rot90(I)\ny = hmirror(x)\nO = replace(y, 1, 1)",
            "x = rot90(I)\nO = fill(x, 3, ofcolor(x, 4))",
            "x = rot90(I)\ny = hmirror(x)\nO = y",
        ];
        let of = runs(&texts, RUN_MAX);
        assert_eq!(of.count(), 2);
        assert_eq!(of.sharing(), 3);
        let place = |program: u32| of.order.iter().position(|at| *at == program).unwrap();
        // The three that mirror stand beside each other.
        let mut mirroring = [0, 2, 4].map(place);
        mirroring.sort_unstable();
        assert_eq!(mirroring[2], mirroring[0] + 2);
        assert_eq!(mirroring[1..].iter().map(|at| of.shared[*at]).collect::<Vec<_>>(), [2, 2]);
        assert!(of.shared[place(3)] <= 1);
        // Pairs of them.
        let pairs = runs(&texts, 2);
        assert_eq!(pairs.count(), 3);
        let starts: Vec<_> = pairs.starts.windows(2).map(|run| run[1] - run[0]).collect();
        assert!(starts.iter().all(|length| (1..=2).contains(length)), "{starts:?}");
    }

    #[test]
    fn what_is_in_a_loop_or_a_branch_is_not_split() {
        let inner = |color: u32| {
            format!(
                "x = objects(I, T, F, T)\ny = apply(lambda o: recolor({color}, o), x)\nO = paint(I, merge(y))"
            )
        };
        let texts = [inner(1), inner(2)];
        let of = runs(&[&texts[0], &texts[1]], RUN_MAX);
        assert_eq!((of.count(), of.shared[1]), (1, 1));
        let twice = runs(&[&texts[0], &texts[0]], RUN_MAX);
        // All but the last instruction.
        let count = Solver::compile(&texts[0], Ties::Cpython).unwrap().code().instructions().len();
        assert_eq!(twice.shared[1] as usize, count - 1);
    }
}
