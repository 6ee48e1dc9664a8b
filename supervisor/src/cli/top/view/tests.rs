//! Tests with screens of several sizes, as text.

use gridpool_protocol::status::{QuarantineStatus, RunStatus, WorkerStatus};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::super::input::Key;
use super::*;
use crate::history::Snapshot;
use crate::history::tests::{gpu, model, pictures, snapshot, worker};

/// A pool of three GPUs: one runs programs and models, one dies repeatedly, one starts.
fn snapshots() -> [Snapshot; 2] {
    let mut busy = worker("gpu0#1", "grid");
    busy.pid = 4_242;
    busy.device.name = "NVIDIA H200".to_owned();
    (busy.jobs_done, busy.items_done) = (10, 640);
    let mut models = worker("gpu0#2", "infer");
    models.device.name = "NVIDIA H200".to_owned();
    let mut out = worker("gpu1#9", "grid");
    (out.pid, out.restarts, out.state) = (0, 4, WorkerState::Quarantined);
    let mut starting = worker("gpu2#3", "grid");
    (starting.state, starting.restarts) = (WorkerState::Starting, 1);
    starting.last_fault = "gpu2#1 died: signal 11 (SIGSEGV)".to_owned();
    let before = vec![busy.clone(), models.clone(), out.clone(), starting.clone()];
    let run = |what: &str, jobs| RunStatus {
        job: "job17".to_owned(),
        what: what.to_owned(),
        jobs,
        items: 64 * u64::from(jobs),
        for_us: 450_000,
    };
    busy.state = WorkerState::Busy;
    busy.run = Some(run("rot90 | objects(true, false, true) | argmax(size)", 1));
    (busy.jobs_done, busy.items_done) = (250, 15_640);
    models.state = WorkerState::Busy;
    models.run = Some(run("resnet", 3));
    (models.jobs_done, models.items_done) = (90, 90);
    let mut snapshots =
        [snapshot(3_600.0, before), snapshot(3_602.0, vec![busy, models, out, starting])];
    let [device, role, group, why] =
        ["gpu1", "grid", "grid", "gpu1#9 died: exit code 71"].map(str::to_owned);
    let out = QuarantineStatus { device, role, group, why, tried_in_us: Some(41_000_000) };
    for snapshot in &mut snapshots {
        snapshot.status.quarantines.push(out.clone());
        snapshot.status.devices = vec![gpu("gpu0"), gpu("gpu1"), gpu("gpu2")];
        snapshot.models =
            vec![model("gpu0#2", "bert", "no kernel for Foo"), model("gpu0#2", "resnet", "")];
    }
    let counters = &mut snapshots[1].status.counters;
    (counters.accepted, counters.ok, counters.failed, counters.poison) = (350, 340, 1, 2);
    let queue = &mut snapshots[1].status.queue;
    (queue.jobs, queue.bytes, queue.oldest_us) = (3, 12 << 10, Some(450_000));
    snapshots
}

fn seen() -> Picture {
    pictures(snapshots()).remove(1)
}

fn scene<'a>(picture: &'a Picture, input: &'a InputHandler) -> Scene<'a> {
    Scene { picture: Some(picture), input, trouble: None, colors: true }
}

/// The lines of a screen of this size.
fn screen(scene: &Scene<'_>, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(scene, frame.area(), frame.buffer_mut())).unwrap();
    let cells = terminal.backend().buffer().content();
    let line = |line: &[ratatui_core::buffer::Cell]| {
        let text: String = line.iter().map(ratatui_core::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    };
    cells.chunks(width.into()).map(line).collect()
}

#[track_caller]
fn shows(lines: &[String], want: &str) {
    let want: Vec<_> = want.lines().collect();
    assert_eq!(lines, want, "\n{}", lines.join("\n"));
}

#[test]
fn everything_is_readable_on_80_columns_and_24_lines() {
    let picture = seen();
    shows(&screen(&scene(&picture, &InputHandler::default()), 80, 24), include_str!("80x24.txt"));
}

#[test]
fn a_larger_screen_shows_more_of_each() {
    let picture = seen();
    shows(&screen(&scene(&picture, &InputHandler::default()), 120, 40), include_str!("120x40.txt"));
}

#[test]
fn the_past_of_each_device_is_shown_in_lines_that_nothing_else_needs() {
    let past = Past { is_hour: false, lines: vec![("gpu0 grid".to_owned(), vec!['r', 'b', 'o'])] };
    let now = Snapshot { past, ..snapshot(1.0, vec![worker("gpu0#1", "grid")]) };
    let picture = pictures([now]).pop().unwrap();
    let input = InputHandler::default();
    let lines = screen(&scene(&picture, &input), 80, 24);
    let title =
        "  LAST TWO MINUTES · ready  ▄ busy  ~ starts or ends  x restarted  # out of service";
    let at = lines.iter().position(|line| line.starts_with("  LAST TWO")).expect("a title");
    assert_eq!(lines[at], title.chars().take(80).collect::<String>().trim_end());
    assert_eq!(lines[at + 1], "  gpu0 grid ·▄#");
    let narrow = screen(&scene(&picture, &input), 6, 24);
    assert!(narrow.iter().any(|line| line == "  g… #"), "{narrow:?}");
    let low = screen(&scene(&picture, &input), 80, u16::try_from(at).unwrap() + 2);
    assert!(!low.iter().any(|line| line.contains("LAST TWO")), "no line is left");
}

#[test]
fn a_small_screen_leaves_columns_out() {
    let picture = seen();
    shows(&screen(&scene(&picture, &InputHandler::default()), 40, 10), include_str!("40x10.txt"));
}

#[test]
fn every_size_of_a_screen_works() {
    let mut many = snapshots()[1].clone();
    many.status.workers = (0..64).map(|index| worker(&format!("gpu{index}#1"), "grid")).collect();
    let pictures =
        [pictures([many]).remove(0), seen(), pictures([snapshot(1.0, vec![])]).remove(0)];
    let mut asks = InputHandler::default();
    asks.press(Key::Char('d'), None);
    let mut helps = InputHandler::default();
    helps.press(Key::Char('?'), None);
    for input in [&InputHandler::default(), &asks, &helps] {
        let nothing =
            Scene { picture: None, trouble: Some("no pool"), ..scene(&pictures[0], input) };
        for scene in pictures.iter().map(|picture| scene(picture, input)).chain([nothing]) {
            for width in (0..45).chain([79, 80, 81, 300]) {
                for height in (0..26).chain([120]) {
                    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                    draw(&scene, buffer.area, &mut buffer);
                }
            }
        }
    }
}

#[test]
fn trouble_is_shown_in_full_and_the_rows_stay_in_place() {
    let (picture, input) = (seen(), InputHandler::default());
    let row = |lines: &[String]| lines.iter().position(|line| line.contains("gpu0#1 ")).unwrap();
    let calm = row(&screen(&scene(&picture, &input), 80, 24));
    let told = |trouble: &str| {
        let lines = screen(&Scene { trouble: Some(trouble), ..scene(&picture, &input) }, 80, 24);
        (lines[1..4].join(" "), row(&lines))
    };
    let (text, at) = told("the pool was drained and has stopped");
    assert!(text.starts_with("the pool was drained and has stopped 1"), "{text}");
    assert_eq!(at, calm);
    let long = "no pool is running at /run/user/1000/gridpool/pool.sock: start one with `gridpool \
                serve`, or name its socket with --socket: No such file or directory";
    let (text, at) = told(long);
    assert!(text.starts_with(long), "{text}");
    assert_eq!(at, calm);
    let longer = format!("{long} and {long}");
    assert_eq!(told(&longer).1, calm + 1, "at most three lines");
}

#[test]
fn the_chosen_row_is_always_visible() {
    let rows = (0..64)
        .map(|index| worker(&format!("cpu{index}#1"), "grid"))
        .collect::<Vec<WorkerStatus>>();
    let picture = pictures([snapshot(1.0, rows)]).remove(0);
    let mut input = InputHandler::default();
    for at in 0..64 {
        let lines = screen(&scene(&picture, &input), 80, 24);
        let marked: Vec<_> = lines.iter().filter(|line| line.starts_with("> ")).collect();
        assert!(
            matches!(&marked[..], [one] if one.starts_with(&format!("> cpu{at}#1 "))),
            "{lines:?}"
        );
        assert!(lines[3].contains(" of 64"), "{}", lines[3]);
        input.press(Key::Down, Some(&picture));
    }
}

#[test]
fn a_question_or_a_message_replaces_the_keys_in_full() {
    let picture = seen();
    let mut input = InputHandler::default();
    input.press(Key::Char('k'), Some(&picture));
    let lines = screen(&scene(&picture, &input), 40, 10);
    assert_eq!(lines[8..], ["SIGKILL to gpu0#1? y: yes, any other", "key: no"]);
    input.press(Key::Char('n'), Some(&picture));
    input.say("signal 9 sent to gpu0#1 (pid 4242)".to_owned());
    assert_eq!(screen(&scene(&picture, &input), 80, 24)[23], "signal 9 sent to gpu0#1 (pid 4242)");
}

#[test]
fn the_help_fits_80_columns_and_24_lines() {
    let picture = seen();
    let mut input = InputHandler::default();
    input.press(Key::Char('?'), None);
    let lines = screen(&scene(&picture, &input), 80, 24);
    assert_eq!(lines[..HELP.len()], HELP);
}

#[test]
fn a_pool_that_is_gone_is_reported_above_the_last_picture() {
    let picture = seen();
    let input = InputHandler::default();
    let gone = Scene { trouble: Some("no pool is running"), ..scene(&picture, &input) };
    let lines = screen(&gone, 80, 24);
    assert_eq!(lines[1], "no pool is running");
    let mut before = screen(&scene(&picture, &input), 80, 24);
    before[1].clone_from(&lines[1]);
    assert_eq!(lines, before, "no other line has moved");
}

#[test]
fn without_colours_a_mark_shows_the_chosen_row() {
    let (picture, input) = (seen(), InputHandler::default());
    let style_of = |colors| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        draw(&Scene { colors, ..scene(&picture, &input) }, buffer.area, &mut buffer);
        let colored = buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count();
        let reversed = |y| (0..60).all(|x| buffer[(x, y)].modifier.contains(Modifier::REVERSED));
        (colored > 0, reversed(4), reversed(5))
    };
    assert_eq!(style_of(false), (false, true, false));
    assert_eq!(style_of(true), (true, true, false));
}

#[test]
fn the_sections_below_take_at_most_half_of_the_lines_if_the_table_needs_them() {
    assert_eq!(share(6, 9, 2, 3), Heights { rows: 5, details: 0, models: 0, faults: 0 });
    assert_eq!(share(6, 2, 2, 3), Heights { rows: 2, details: 0, models: 0, faults: 3 });
    assert_eq!(share(20, 4, 2, 3), Heights { rows: 4, details: 2, models: 3, faults: 3 });
    assert_eq!(share(20, 60, 9, 9), Heights { rows: 9, details: 2, models: 4, faults: 4 });
    assert_eq!(share(20, 60, 0, 1), Heights { rows: 16, details: 2, models: 0, faults: 1 });
}
