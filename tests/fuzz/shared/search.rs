//! What a worker reads of a search, and the templates that a client expands: offsets, programs, holes.

use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{
    CompiledTemplate, JobPrograms, PROGRAM_ALIGN, ProgramForm, ProgramOffsets, Score, SearchLayout,
    SearchSize, Template,
};
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::solver::Code;

/// Texts of a template that are looked at.
const TEXTS_MAX: usize = 64;

/// The first bytes are the numbers of a search, the rest its memory; all of them a template.
pub(crate) fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(Some(template)) = Template::parse(text)
    {
        let texts: Vec<_> = template.texts().take(TEXTS_MAX).collect();
        assert!(!texts.is_empty() && texts.len() as u64 <= template.count());
        let choices: std::collections::BTreeSet<_> =
            texts.iter().map(|(choice, _)| choice).collect();
        assert!(choices.len() <= texts.len());
        let parts = template.parts();
        assert_eq!(parts.iter().map(Template::count).sum::<u64>(), template.count());
        for part in parts.iter().take(TEXTS_MAX) {
            if let Some((compiled, order)) = CompiledTemplate::compile(part, Ties::Cpython, 100) {
                assert_eq!(compiled.count(), part.count());
                let (choice, _) = part.clone().in_order(order).text(0);
                assert_eq!(choice, part.text(0).0);
                assert_eq!(CompiledTemplate::from_bytes(&compiled.to_bytes()), Ok(compiled));
            }
        }
    }
    let Some((numbers, memory)) = data.split_first_chunk::<8>() else { return };
    let [a, b, c, d, e, f, g, h] = numbers.map(u32::from);
    let (programs, pairs, cells) = (a | b << 8, c | d << 8, e | f << 8);
    let form = match h >> 6 {
        0 => ProgramForm::Listed,
        1 => ProgramForm::Alone,
        _ => ProgramForm::Template { first: a },
    };
    let size =
        SearchSize { programs, program_bytes: 8 * (g | (h & 0x3f) << 8), pairs, cells, form };
    let Ok(layout) = SearchLayout::new(size, Score::Cells) else { return };
    if layout.input_bytes() > 1 << 20 {
        return;
    }
    let mut input = vec![0; layout.input_bytes()];
    let length = memory.len().min(input.len());
    input[..length].copy_from_slice(&memory[..length]);
    let bytes = input.clone();
    let shared = SharedSlice::private(&mut input);
    if let Ok(read) = JobPrograms::read(layout, &shared) {
        assert_eq!(read.len(), layout.programs());
        (0..read.len().min(TEXTS_MAX)).for_each(|at| drop(read.program(at)));
    }
    if let ProgramForm::Template { .. } = form {
        return;
    }
    let all = 0..layout.programs();
    let Ok(offsets) = ProgramOffsets::read(layout, &all, &shared) else { return };
    assert!(offsets.all().end <= layout.code().len());
    for at in all.take(TEXTS_MAX) {
        let program = &bytes[layout.code()][offsets.of(at)];
        if let Ok(code) = Code::from_padded(program, PROGRAM_ALIGN) {
            let length = code.to_bytes().len();
            assert_eq!(code.to_bytes(), program[..length]);
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut search = vec![2, 0, 1, 0, 2, 0, 4, 0];
    search.resize(200, 0);
    let templates = [
        "O = replace(I, ?a:color, ?b:color)",
        "?f in [rot90, fill(2, ofcolor(1))]",
        "?f:Grid->Grid(I)",
    ];
    let templates = templates.iter().map(|text| text.as_bytes().to_vec());
    templates.chain([search]).collect()
}
