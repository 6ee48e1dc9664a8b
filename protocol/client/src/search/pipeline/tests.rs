//! The order of programs, the waits for them, and the bounds.

use std::time::Duration;

use super::*;

/// More programs than fit, and the length of their names.
const PROGRAMS: usize = 4_096;
const NAME_BYTES: usize = 32 << 10;

#[test]
fn programs_that_come_one_by_one_or_in_bursts_are_compiled_without_the_next() {
    let (reads, wanted) = std::sync::mpsc::channel();
    let programs = wanted.into_iter().map(|at: u64| Candidate::new(at.to_string(), "rot90"));
    let terms = Terms { ties: Ties::Cpython, steps: 1, sharing: true };
    let pipeline = Pipeline::start(programs, terms, 3).unwrap();
    let mut next = 0;
    for burst in [1, 1, 2, 100, 1, 3_000, 33, 1].into_iter().cycle().take(200) {
        (next..next + burst).for_each(|at| reads.send(at).unwrap());
        let end = next + burst;
        while next < end {
            let until = clock::now() + Duration::from_secs(60);
            let Taken::Programs(programs) = pipeline.take(Some(until)) else {
                panic!("no programs")
            };
            next += programs.len() as u64;
        }
    }
    drop(reads);
    assert!(matches!(pipeline.take(None), Taken::End(Ok(()))));
}

#[test]
fn names_count_and_what_texts_become_and_every_program_comes_in_order() {
    let name = |at: usize| format!("{at:0NAME_BYTES$}");
    let programs = (0..PROGRAMS).map(move |at| Candidate::new(name(at), "rot90"));
    let terms = Terms { ties: Ties::Cpython, steps: 1, sharing: true };
    let pipeline = Pipeline::start(programs, terms, 2).unwrap();
    // Nobody takes any: the threads go on until nothing more fits.
    let held = loop {
        let state = pipeline.state.lock();
        if !state.may_compile() && state.text_bytes + 2 * NAME_BYTES > TEXT_BYTES_MAX {
            break state.text_bytes + state.compiled_bytes;
        }
        assert_eq!((state.read, state.panicked), (None, None), "all were read");
        drop(state);
        thread::yield_now();
    };
    // Each thread may have begun just before.
    let begun = 2 * COMPILED_AT_ONCE_MAX * 2 * NAME_BYTES;
    assert!(held <= TEXT_BYTES_MAX + COMPILED_BYTES_MAX + begun, "{held}");
    let mut next = 0;
    while let Taken::Programs(programs) = pipeline.take(None) {
        for one in programs {
            let Compiled::Program { id, made } = one else { panic!("a template") };
            assert_eq!((id.parse(), made.is_ok()), (Ok(next), true));
            next += 1;
        }
    }
    assert_eq!(next, PROGRAMS);
    let state = pipeline.state.lock();
    assert_eq!((state.text_bytes, state.compiled_bytes), (0, 0));
}
