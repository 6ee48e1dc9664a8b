//! Layouts, offsets and statuses of searches.

use super::*;
use crate::batch::{Grid, GridBatch};
use crate::limits::{SEARCH_PAIRS_MAX, SEARCH_PROGRAM_BYTES_MAX, SEARCH_PROGRAMS_MAX};
use crate::output::ItemErrorCode;
use crate::program::Ties;
use crate::shared::SharedSlice;

fn size() -> SearchSize {
    SearchSize { programs: 3, program_bytes: 48, pairs: 2, cells: 4, form: ProgramForm::Listed }
}

#[test]
fn parts_follow_each_other_and_shards_have_places_of_their_own() {
    for score in Score::ALL {
        let layout = SearchLayout::new(size(), score).unwrap();
        assert!(layout.batch().bytes() <= layout.offsets().start);
        assert_eq!(layout.offsets().len(), 16);
        assert!(
            layout.offsets().end <= layout.code().start && layout.code().start.is_multiple_of(16)
        );
        assert!(layout.code().end <= layout.input_bytes());
        assert_eq!(layout.statuses(&(0..3)), 0..6);
        assert_eq!(layout.statuses(&(1..2)), 2..4);
        let scores = layout.scores(&(1..3)).len();
        assert_eq!(scores, if score == Score::Cells { 8 } else { 0 });
        assert!(layout.scores(&(0..3)).end <= layout.output_bytes());
        assert!(layout.statuses(&(0..3)).end <= layout.scores(&(0..1)).start);
    }
}

#[test]
fn numbers_over_a_limit_are_refused_in_words() {
    let refused = |size: SearchSize| SearchLayout::new(size, Score::Exact).unwrap_err();
    let programs = |programs| refused(SearchSize { programs, ..size() }).to_string();
    assert_eq!(programs(0), "the search has 0 programs; a job has 1 to 65536");
    assert!(programs(SEARCH_PROGRAMS_MAX + 1).contains("65537 programs"));
    let bytes = |program_bytes| refused(SearchSize { program_bytes, ..size() });
    assert_eq!(bytes(12), SearchError::ProgramBytes { bytes: 12 });
    let over = SEARCH_PROGRAM_BYTES_MAX + 8;
    assert_eq!(bytes(over), SearchError::ProgramBytes { bytes: over.into() });
    let pairs = |pairs| refused(SearchSize { pairs, cells: pairs, ..size() });
    assert_eq!(pairs(0), SearchError::Pairs { pairs: 0 });
    assert!(matches!(pairs(SEARCH_PAIRS_MAX + 1), SearchError::Pairs { .. }));
    let large = SearchSize { programs: 1 << 16, pairs: 1 << 11, cells: 1 << 12, ..size() };
    assert_eq!(refused(large), SearchError::Evaluations { evaluations: 1 << 27 });
    assert!(matches!(refused(SearchSize { cells: 0, ..size() }), SearchError::Batch(_)));
}

#[test]
fn programs_come_back_from_where_they_were_written_and_wrong_offsets_are_refused() {
    let grid = Grid::from_rows(&[[1, 2]]).unwrap();
    let pairs = GridBatch::from_pairs([(&grid, Some(&grid))]).unwrap().layout().unwrap();
    let mut packed = PackedPrograms::default();
    for length in [16, 17, 3] {
        packed.push(&vec![7; length]).unwrap();
    }
    assert_eq!((packed.len(), packed.bytes()), (3, 16 + 24 + 8));
    assert_eq!(packed.program(1).len(), 24);
    let layout = SearchLayout::new(packed.size(pairs), Score::Exact).unwrap();
    let mut memory = vec![0; layout.input_bytes()];
    let shared = SharedSlice::private(&mut memory);
    packed.write_to(layout, &shared);
    let read = |programs| ProgramOffsets::read(layout, &programs, &shared);
    let all = read(0..3).unwrap();
    assert_eq!((all.of(0), all.of(1), all.of(2)), (0..16, 16..40, 40..48));
    assert_eq!(read(1..3).unwrap().all(), 16..48);
    for (program, got) in [(1, 44_u32), (2, 8), (3, 56), (0, 24), (1, u32::MAX)] {
        let at = layout.offsets().start + 4 * program;
        let mut kept = [0; 4];
        shared.read(at, &mut kept);
        shared.write(at, &got.to_le_bytes());
        let error = read(0..3).unwrap_err();
        assert!(matches!(error, SearchError::Offset { bytes: 48, .. }), "{error}");
        shared.write(at, &kept);
    }
}

#[test]
fn every_status_has_a_byte_and_every_byte_at_most_one_status() {
    let named = ItemErrorCode::ALL.map(PairStatus::Error);
    let others = [PairStatus::Equal, PairStatus::Differs, PairStatus::NoProgram];
    for status in named.into_iter().chain(others) {
        assert_eq!(PairStatus::from_byte(status.byte()), Some(status), "{}", status.name());
    }
    for byte in 0..=u8::MAX {
        let mut bytes = [PairStatus::DIFFERS; 100];
        bytes[usize::from(byte) % 100] = byte;
        assert_eq!(PairStatus::are_known(&bytes), PairStatus::from_byte(byte).is_some(), "{byte}");
    }
    let known = (0..=u8::MAX).filter_map(PairStatus::from_byte).count();
    assert_eq!(known, named.len() + others.len());
    for (equal_shape, equal_cells) in [(false, 0), (true, 4_096), (false, 17)] {
        let score = CellScore { equal_shape, equal_cells };
        assert_eq!(CellScore::from_number(score.number()), Some(score));
    }
    assert_eq!(CellScore::from_number(4_097), None);
}

#[test]
fn templates_give_each_choice_once_and_name_it() {
    let of = |text: &str| Template::parse(text).unwrap().unwrap();
    let texts = |text: &str| of(text).texts().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(texts("?f in [rot90, fill(2, ofcolor(1))]"), ["rot90", "fill(2, ofcolor(1))"]);
    let twice = of("O = replace(?f:Grid->Grid in [rot90, hmirror](I), ?a:color, ?b:color) # ?c\n");
    assert_eq!(twice.count(), 200);
    let (choice, text) = twice.text(123);
    assert_eq!(choice, "f=hmirror,a=2,b=3");
    assert_eq!(text, "O = replace(hmirror(I), 2, 3) # ?c\n");
    let described = of(
        "def f(I):\n    \"\"\"Which? ?c. #\"\"\"\n    'so?'\n    return replace(I, ?a:color, 1)",
    );
    assert_eq!(described.count(), 10);
    assert_eq!(Template::parse("'Which?'\nO = rot90(I)").unwrap(), None);
    let named_twice = texts("x = ?f in [rot90, hmirror](I)\nO = ?f(x)");
    assert_eq!(named_twice[1], "x = hmirror(I)\nO = hmirror(x)");
    let all: std::collections::BTreeSet<_> = twice.texts().collect();
    assert_eq!(all.len(), 200);
    assert_eq!(of("objects(I, ?a:bool, ?b:flag, T)").count(), 4);
    for word in of("O = ?f:Grid->Grid(I)").texts().map(|(_, text)| text) {
        compile(&word, Ties::Cpython, 10).unwrap();
    }
    for (_, word) in of("O = shift(asobject(I), ?d:direction)\nO = paint(I, O)").texts() {
        compile(&word, Ties::Cpython, 10).unwrap();
    }
}

#[test]
fn wrong_holes_are_told_with_what_to_write() {
    let says = |text: &str| Template::parse(text).unwrap_err().to_string();
    assert!(says("replace(?a, 1)").contains("write ?a:color"));
    assert!(says("replace(?a:colour, 1)").contains("color"));
    assert!(says("replace(?, 1)").contains("?a:color"));
    assert!(says("?f in [rot90").contains("never closed"));
    assert!(says("?f in []").contains("empty word"));
    assert!(says("?a:color ?a in [1, 2]").contains("say them once"));
    assert!(says("?f in [rot90, fill(?a:color, asindices)]").contains("a hole of its own"));
    let many = (0..40).map(|hole| format!("?h{hole}:color")).collect::<Vec<_>>().join(" ");
    assert!(says(&many).contains("more than 4294967296 programs"));
}

#[test]
fn chains_and_solvers_of_one_meaning_have_one_hash_and_what_gives_no_grid_is_refused() {
    let hash = |text: &str| compile(text, Ties::Cpython, 1_000).unwrap().hash();
    assert_eq!(
        hash("o_g(5) | argmax(size) | subgrid"),
        hash("x1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nx9 = rot90(I)\nO = subgrid(x2, I)")
    );
    assert_ne!(hash("rot90"), compile("rot90", Ties::Cpython, 999).unwrap().hash());
    let says = |text: &str| compile(text, Ties::Cpython, 1_000).unwrap_err().to_string();
    assert!(says("o_g(5)").contains("a set of objects"), "{}", says("o_g(5)"));
    assert!(says("rot91").contains("rot91"));
    assert!(says("O = rot90(ONE)").contains("rot90 wants a grid"));
    assert!(says("hconcat").contains("takes pairs"), "{}", says("hconcat"));
    let none = compile("rot90", Ties::Cpython, 0).unwrap_err().to_string();
    assert!(none.contains("from 1 to 100000000"));
}

#[test]
fn a_template_whose_texts_would_be_too_long_is_refused_before_one_is_made() {
    let word = "x".repeat(9_000);
    let twice = format!("f(?a in [{word}, y], ?a)");
    let refused = Template::parse(&twice).unwrap_err().to_string();
    assert!(refused.contains("with its longest words it has 18005 bytes"), "{refused}");
    let once = format!("f(?a in [{word}, y])");
    assert_eq!(Template::parse(&once).unwrap().unwrap().count(), 2);
}
