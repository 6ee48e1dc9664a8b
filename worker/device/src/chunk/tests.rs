//! Chunks of attempts and grids of many sizes, some of them bad.

use gridpool_protocol::batch::{BatchError, Grid, GridBatch};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Ties;
use gridpool_protocol::shared::SharedSlice;

use super::*;
use crate::device::GridAttempt;

fn compile(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).unwrap()
}

fn grid(area: usize) -> Grid {
    match area {
        4_096 => Grid::new(64, 64, vec![0; area]).unwrap(),
        900 => Grid::new(30, 30, vec![0; area]).unwrap(),
        _ => Grid::new(1, area, vec![0; area]).unwrap(),
    }
}

const AREAS: [usize; 11] = [1, 1, 30, 900, 4_096, 1, 2, 3, 64, 64, 1];

/// A chunk as a device sees it: its pieces, and areas and offsets of its grids.
#[derive(Debug)]
struct Chunk {
    pieces: Vec<Piece>,
    areas: Vec<usize>,
}

/// Some items of a batch, with the bytes that hold it.
struct Source {
    batch: GridBatch,
    items: Range<usize>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Source {
    fn new(program: &Program, batch: GridBatch, items: Range<usize>) -> Self {
        let layout = batch.layout().unwrap();
        let mut input = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut input));
        let output = vec![0; OutputLayout::new(program, layout).unwrap().bytes()];
        Self { batch, items, input, output }
    }
}

/// Feeds all of `sources` in chunks, and checks what must hold for any chunks.
fn feed(
    program: &Program,
    sources: &mut [Source],
    limits: ChunkLimits,
    cells_in_max: usize,
) -> (Vec<Chunk>, Vec<(usize, AttemptRefusal)>) {
    let parts: Vec<_> = sources.iter().map(|source| source.items.clone()).collect();
    let attempts: Vec<_> = sources
        .iter_mut()
        .map(|source| {
            let input = SharedSlice::private(&mut source.input);
            let output = SharedSlice::private(&mut source.output);
            let layout = source.batch.layout().unwrap();
            GridAttempt::new(program, layout, source.items.clone(), input, output).unwrap()
        })
        .collect();
    let dispatch = GridDispatch { program, attempts: &attempts };
    let rest = parts.iter().cloned().enumerate();
    let mut rest: Vec<_> = rest.map(|(attempt, items)| Span { attempt, items }).collect();
    let mut feed = Feed::new(&dispatch, &mut rest, limits, cells_in_max);
    let (mut chunks, mut refusals) = (Vec::new(), Vec::new());
    while !feed.is_empty() {
        let grids = feed.plan();
        assert!(grids > 0, "there is always a next item");
        let (mut shapes, mut offsets) = (vec![[7; 2]; grids], vec![[7; 4]; grids + 1]);
        let mut pieces = Vec::new();
        feed.fill(&mut shapes, &mut offsets, &mut pieces, |attempt, refusal| {
            refusals.push((attempt, refusal));
        });
        let Some(last) = pieces.last() else { continue };
        let grids = last.of_chunk.items.end * program.grids_per_item() as usize;
        let offset = |at: usize| u32::from_le_bytes(offsets[at]) as usize;
        let areas: Vec<_> = (0..grids).map(|at| offset(at + 1) - offset(at)).collect();
        let shown = shapes[..grids].iter().map(|&[h, w]| usize::from(h) * usize::from(w));
        assert!(shown.eq(areas.iter().copied()), "offsets are those of the shapes");
        let (mut items, mut cells) = (0, 0);
        for piece in &pieces {
            assert_eq!((piece.of_chunk.items.start, piece.of_chunk.cells.start), (items, cells));
            assert_eq!(piece.of_chunk.items.len(), piece.of_batch.items.len());
            assert_eq!(piece.of_chunk.cells.len(), piece.of_batch.cells.len());
            (items, cells) = (piece.of_chunk.items.end, piece.of_chunk.cells.end);
        }
        assert_eq!((offset(0), offset(grids)), (0, cells));
        assert!(items <= limits.items_max.max(1));
        assert!(cells <= limits.cells_max.min(cells_in_max) || items == 1, "{pieces:?}");
        chunks.push(Chunk { pieces, areas });
    }
    // Every item of an attempt that was not refused comes once, in order.
    for (attempt, part) in parts.iter().enumerate() {
        let of_attempt = chunks.iter().flat_map(|chunk| &chunk.pieces);
        let of_attempt = of_attempt.filter(|piece| piece.attempt == attempt);
        let mut at = part.start;
        for piece in of_attempt {
            assert_eq!(piece.of_batch.items.start, at);
            at = piece.of_batch.items.end;
        }
        assert!(at == part.end || refusals.iter().any(|(refused, _)| *refused == attempt));
    }
    (chunks, refusals)
}

fn singles(program: &Program, areas: &[usize]) -> Source {
    let grids: Vec<_> = areas.iter().map(|&area| grid(area)).collect();
    Source::new(program, GridBatch::from_grids(&grids).unwrap(), 0..areas.len())
}

#[test]
fn chunks_keep_the_limits_and_lose_no_item() {
    let program = compile("rot90");
    for (items_max, cells_max) in [(1, 1), (3, 100), (100, 1_000), (2, 10_000), (2, 1 << 30)] {
        let limits = ChunkLimits { items_max, cells_max };
        for cells_in_max in [50, 5_000, 1 << 30] {
            let mut sources = [singles(&program, &AREAS), singles(&program, &AREAS[4..])];
            sources[1].items = 2..6;
            let (chunks, refusals) = feed(&program, &mut sources, limits, cells_in_max);
            assert_eq!(refusals, []);
            let areas: Vec<_> = chunks.iter().flat_map(|chunk| chunk.areas.clone()).collect();
            assert_eq!(areas, [&AREAS[..], &AREAS[6..10]].concat());
        }
    }
}

#[test]
fn small_attempts_share_a_chunk_and_a_large_one_has_many() {
    let program = compile("rot90");
    let limits = ChunkLimits { items_max: 1_000, cells_max: 10_000 };
    let mut small: Vec<_> = (0..8).map(|_| singles(&program, &[900])).collect();
    let (chunks, _) = feed(&program, &mut small, limits, 1 << 30);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].pieces.len(), 8);
    let mut large = [singles(&program, &[30; 20]), singles(&program, &[900; 30])];
    let (chunks, _) = feed(&program, &mut large, limits, 1 << 30);
    let counts: Vec<_> = chunks.iter().map(|chunk| chunk.areas.len()).collect();
    assert_eq!(counts, [30, 11, 9], "20 of 30 and 10 of 900 are 9,600 cells");
}

#[test]
fn a_batch_that_is_not_like_its_mean_is_cut_as_it_is() {
    let program = compile("rot90");
    let limits = ChunkLimits { items_max: 1_000, cells_max: 8_200 };
    let areas = [[4_096; 10].as_slice(), &[1; 490]].concat();
    let (chunks, _) = feed(&program, &mut [singles(&program, &areas)], limits, 1 << 30);
    let counts: Vec<_> = chunks.iter().map(|chunk| chunk.areas.len()).collect();
    assert_eq!(counts[..4], [2, 2, 2, 2]);
    assert!(counts.len() < 12, "{counts:?}");
}

#[test]
fn a_pair_stays_in_one_chunk() {
    let program = compile("hconcat");
    let grids = AREAS.map(grid);
    let pairs = grids.iter().map(|grid| (grid, (grid.w() > 1).then_some(grid)));
    let batch = GridBatch::from_pairs(pairs).unwrap();
    let limits = ChunkLimits { items_max: 4, cells_max: 200 };
    let mut sources = [Source::new(&program, batch, 0..AREAS.len())];
    let (chunks, _) = feed(&program, &mut sources, limits, 1 << 30);
    assert!(chunks.iter().all(|chunk| chunk.areas.len() % 2 == 0));
    let items: usize = chunks.iter().map(|chunk| chunk.areas.len() / 2).sum();
    assert_eq!(items, AREAS.len());
}

#[test]
fn a_chunk_is_shorter_where_a_step_makes_its_grids_grow() {
    let limits = ChunkLimits { items_max: 1_000, cells_max: 60_000 };
    for (text, items) in [
        ("rot90", 1_000),
        ("upscale(2)", 500),
        ("upscale(2) | palette", 500),
        // A grid has at most 4,096 cells, no matter how often it grew.
        ("upscale(30) | upscale(30)", 14),
        ("ofcolor(0) | outbox | subgrid", 389),
        ("hsplit(10) | first", 100),
        ("hsplit(10) | apply(mostcolor)", 100),
        ("canvas(1, 10, 100)", 60),
    ] {
        let program = compile(text);
        let mut sources = [singles(&program, &[30; 1_000])];
        let (chunks, _) = feed(&program, &mut sources, limits, 1 << 30);
        assert_eq!(chunks[0].areas.len(), items, "{text}");
    }
}

#[test]
fn an_attempt_with_bad_tables_is_left_out_wherever_they_are_bad() {
    let program = compile("rot90");
    let limits = ChunkLimits { items_max: 5, cells_max: 1 << 30 };
    for bad in 0..12 {
        for at in 0..3 {
            let mut sources: Vec<_> = (0..3).map(|_| singles(&program, &[30; 12])).collect();
            sources[at].input[2 * bad] = 0;
            let (_, refusals) = feed(&program, &mut sources, limits, 1 << 30);
            let want = BatchError::Shape { grid: bad, h: 0, w: 30 };
            assert_eq!(refusals, [(at, want.into())]);
            // A bad grid outside the attempt's items does no harm.
            let mut sources: Vec<_> = (0..3).map(|_| singles(&program, &[30; 12])).collect();
            sources[at].input[2 * bad] = 0;
            sources[at].items = if bad < 6 { bad + 1..12 } else { 0..bad };
            let (_, refusals) = feed(&program, &mut sources, limits, 1 << 30);
            assert_eq!(refusals, []);
        }
    }
}

#[test]
fn what_is_taken_back_comes_again_in_smaller_chunks_and_no_limit_rises() {
    let program = compile("rot90");
    let mut sources = [singles(&program, &[1; 70]), singles(&program, &[2; 30])];
    let attempts = sources.each_mut().map(|source| {
        let layout = source.batch.layout().unwrap();
        let input = SharedSlice::private(&mut source.input);
        let output = SharedSlice::private(&mut source.output);
        GridAttempt::new(&program, layout, source.items.clone(), input, output).unwrap()
    });
    let dispatch = GridDispatch { program: &program, attempts: &attempts };
    let mut rest = vec![Span { attempt: 0, items: 0..70 }, Span { attempt: 1, items: 0..30 }];
    let limits = ChunkLimits { items_max: 80, cells_max: 1_000 };
    let mut feed = Feed::new(&dispatch, &mut rest, limits, 1_000);
    let next = |feed: &mut Feed<'_>| {
        let grids = feed.plan();
        let (mut shapes, mut offsets) = (vec![[0; 2]; grids], vec![[0; 4]; grids + 1]);
        let mut pieces = Vec::new();
        feed.fill(&mut shapes, &mut offsets, &mut pieces, |_, refusal| panic!("{refusal}"));
        pieces
    };
    let items = |pieces: &[Piece]| {
        let of = |piece: &Piece| {
            piece.of_batch.items.clone().map(|item| (piece.attempt, item)).collect::<Vec<_>>()
        };
        pieces.iter().flat_map(of).collect::<Vec<_>>()
    };
    let large = next(&mut feed);
    assert_eq!(items(&large).len(), 80);
    feed.take_back(&large);
    let halves = [next(&mut feed), next(&mut feed)];
    assert_eq!(halves.each_ref().map(|half| items(half).len()), [40, 40]);
    assert_eq!(halves.iter().flat_map(|half| items(half)).collect::<Vec<_>>(), items(&large));
    // Another lane had begun the large one before that.
    feed.take_back(&halves[1]);
    feed.take_back(&large);
    let mut again = Vec::new();
    while !feed.is_empty() {
        let chunk = next(&mut feed);
        assert!(items(&chunk).len() <= 20);
        again.extend(items(&chunk));
    }
    let rest = (0..30).map(|item| (1, item)).filter(|at| !items(&large).contains(at));
    let want = items(&large).into_iter().chain(items(&halves[1])).chain(rest);
    assert_eq!(again, want.collect::<Vec<_>>());
}
