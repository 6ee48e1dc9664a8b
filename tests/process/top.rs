//! `gridpool top` on a real pseudo-terminal and without one; also the colours of results.

pub(crate) mod terminal;

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gridpool_protocol::status::WorkerState;
use nix::sys::signal::Signal;

use crate::binaries;
use crate::infer;
use crate::jobs::{PROGRAM, answer, data, serves, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::processes::{go_on, signal, stop, ticks};
use crate::wait::{eventually, pause};
use terminal::Terminal;

/// `gridpool top` for a pool, with more arguments.
fn top(pool: &Pool, arguments: &[&str]) -> Command {
    let mut command = Command::new(binaries::gridpool());
    command.arg("top").arg("--socket").arg(pool.socket()).args(arguments);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("GRIDPOOL_LOG");
    command
}

/// `top` on a terminal of the usual size, with ten snapshots a second.
fn watched(pool: &Pool) -> Terminal {
    let terminal = Terminal::start(&top(pool, &["--every", "0.1"]), 80, 24);
    terminal.until(&["cpu0#1", "? help"]);
    terminal
}

#[test]
fn results_have_the_colours_of_the_terminal() {
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(binaries::gridpool());
        command.args(["run", "rot90", "--devices", "cpu:1", "--quiet"]);
        command.arg(data("tasks/one_cell.json"));
        for name in ["TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "GRIDPOOL_LOG"] {
            command.env_remove(name);
        }
        let mut terminal = Terminal::start(command.envs(variables.iter().copied()), 80, 60);
        terminal.until(&["cpu0#1  "]);
        assert_eq!(terminal.is_given_back(), Some(0));
        String::from_utf8(terminal.bytes()).expect("text")
    };
    let all = ("COLORTERM", "truecolor");
    for plain in [&[][..], &[("TERM", "dumb"), all], &[("TERM", "xterm"), all, ("NO_COLOR", "1")]] {
        let said = run(plain);
        assert!(!said.contains('\x1b'), "{plain:?}: {said:?}");
    }
    assert!(run(&[("TERM", "linux")]).contains(";4"));
    assert!(run(&[("TERM", "xterm-256color")]).contains(";48;5;"));
    assert!(run(&[("TERM", "xterm-256color"), all]).contains(";48;2;"));
}

/// What a model serves and how fast, and what the devices did before `top` began.
#[test]
fn models_have_a_rate_and_devices_a_past_on_the_screen() {
    let Some(pool) = infer::pool_on(cpu(1), &["three_outputs"]) else { return };
    pool.all_ready();
    let client = pool.client();
    let ask = || infer::answer(client.submit(infer::rows(0, 1).1).expect("it is accepted"));
    ask();
    // A point of the hour takes ten seconds: none is there yet.
    let mut terminal = watched(&pool);
    let past = terminal.until(&["LAST TWO MINUTES", "MODEL", "three_outputs"]);
    let lines: Vec<_> = past.lines().filter(|line| line.starts_with("  cpu0 ")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains('·')), "{past}");
    let row = |text: &str| {
        text.lines().find(|line| line.starts_with("  three_outputs")).map(str::to_owned)
    };
    let words = |row: String| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    terminal.until_so("a rate of the model, on one of one worker", |text| {
        ask();
        let row = row(text).map(words).unwrap_or_default();
        row.get(1).is_some_and(|ready| ready == "1/1")
            && row.last().is_some_and(|rate| rate != "0" && rate != "-")
    });
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
}

#[test]
fn a_worker_killed_by_a_key_is_replaced_on_the_screen() {
    let pool = cpu(2).start();
    let mut terminal = watched(&pool);
    terminal.until(&["> cpu0#1 grid  ready", "  cpu1#1 grid  ready", "0 jobs/s"]);
    terminal.press("k");
    terminal.until(&["SIGKILL to cpu0#1? y: yes, any other key: no"]);
    terminal.press("n");
    terminal.until(&["? help"]);
    terminal.press("\x1b[Bk");
    terminal.until(&["> cpu1#1", "SIGKILL to cpu1#1? y"]);
    terminal.press("y");
    terminal
        .until(&["signal 9 sent to cpu1#1 (pid ", "last fault: cpu1#1 died: signal 9 (SIGKILL)"]);
    terminal.until(&["  cpu0#1 grid  ready", "> cpu1#2 grid  ready"]);
    assert_eq!((pool.slot("cpu0").restarts, pool.slot("cpu1").restarts), (0, 1));
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
    serves(&pool.client());
}

#[test]
fn top_shows_running_and_waiting_jobs_then_rates() {
    let pool = cpu(1).limits("feed_cost_max = 0\njoin_cost_max = 0").start();
    let terminal = watched(&pool);
    pool.stop("cpu0");
    let client = pool.client();
    let jobs = [submit(&client, small_job(1)), submit(&client, small_job(2))];
    let first_op = PROGRAM.split(' ').next().expect("a program has an op");
    let run = format!("s {first_op}");
    terminal.until(&["cpu0#1 grid  busy", &run, "(1 job, 5 items): ", "1 wait, ", ", oldest "]);
    pool.go_on("cpu0");
    jobs.into_iter().map(answer).for_each(drop);
    terminal.until(&["cpu0#1 grid  ready", "2 accepted 0 live 2 ok", "0 wait, 0B  ", "█"]);
}

#[test]
fn the_past_from_before_its_start_is_shown_and_that_from_before_an_upgrade() {
    let pool = cpu(1).start();
    pool.cli(&["kill", "cpu0"]).run().output();
    pool.until("cpu0", "replaced", |slot| slot.generation == 2 && slot.state == WorkerState::Ready);
    let is_there = |text: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with("  cpu0 grid "));
        text.contains("LAST TWO MINUTES") && lines.any(|line| line.contains('x'))
    };
    let mut terminal = Terminal::start(&top(&pool, &["--every", "0.1"]), 80, 24);
    terminal.until_so("the restart", is_there);
    pool.cli(&["upgrade"]).run().output();
    terminal
        .until_so("the next pool", |text| text.contains("cpu0#1 grid  ready") && is_there(text));
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
}

#[test]
fn every_signal_that_ends_top_restores_the_terminal() {
    let pool = cpu(1).start();
    for number in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGABRT,
        Signal::SIGALRM,
        Signal::SIGUSR1,
        Signal::SIGXCPU,
        Signal::SIGTRAP,
    ] {
        let mut terminal = watched(&pool);
        signal(terminal.process.pid(), number);
        assert_eq!(terminal.is_given_back(), Some(0), "{number}");
    }
    // As a key it is no signal.
    let mut terminal = watched(&pool);
    terminal.press("\x03");
    assert_eq!(terminal.is_given_back(), Some(0));
}

#[test]
fn a_suspend_signal_restores_the_terminal_meanwhile() {
    let pool = cpu(1).start();
    let mut terminal = watched(&pool);
    // No shell could continue a process of this session, so the kernel stops none: `top` takes the
    // terminal over again at once.
    signal(terminal.process.pid(), Signal::SIGTSTP);
    eventually("the terminal to be given back and taken again", || {
        let text = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        let at = text.find("\x1b[?1049l").ok_or("it was not given back")?;
        text[at..].find("\x1b[?1049h").ok_or("it was not taken again")
    });
    terminal.until(&["cpu0#1", "? help"]);
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
}

#[test]
fn a_command_triggers_no_snapshot() {
    let pool = cpu(1).start();
    let mut terminal = Terminal::start(&top(&pool, &["--every", "3600"]), 80, 24);
    terminal.until(&["- jobs/s", "? help"]);
    terminal.press("r");
    terminal.until(&["cpu0 is in service"]);
    // A snapshot after the first command would have come before the answer to the second.
    terminal.press("ky");
    let text = terminal.until(&["signal 9 sent to cpu0#1"]);
    assert!(text.contains("- jobs/s"), "a rate needs two snapshots: {text}");
}

#[test]
fn a_missing_supervisor_is_reported_until_another_starts() {
    let pool = cpu(1).start();
    let mut terminal = watched(&pool);
    pool.cli(&["kill", "cpu0"]).run().output();
    terminal.until(&["cpu0#2 grid  ready"]);
    let setup = pool.killed();
    terminal.until(&["no pool is running at ", "cpu0#2"]);
    let pool = setup.start();
    terminal.until_so("the next pool", |text| {
        text.contains("cpu0#1 grid  ready") && !text.contains("no pool")
    });
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
    serves(&pool.client());
}

#[test]
fn a_supervisor_that_does_not_answer_delays_no_key() {
    let pool = cpu(1).start();
    let mut terminal = watched(&pool);
    stop(pool.supervisor.pid());
    terminal.until(&["the pool has not answered for "]);
    terminal.press("?");
    terminal.until(&["choose a worker"]);
    terminal.press("?");
    go_on(pool.supervisor.pid());
    terminal
        .until_so("an answer", |text| text.contains("cpu0#1") && !text.contains("not answered"));
    stop(pool.supervisor.pid());
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
    go_on(pool.supervisor.pid());
}

#[test]
fn a_drain_asks_once_and_a_device_in_service_is_not_released() {
    let pool = cpu(1).start();
    let mut terminal = watched(&pool);
    terminal.press("r");
    terminal.until(&["cpu0 is in service"]);
    terminal.press("d");
    terminal.until(&["drain: finish all accepted jobs, then stop the pool? y: yes"]);
    terminal.press("y");
    pool.ends_well();
    terminal.until(&["the pool was drained and has stopped", "cpu0#1 grid  stopped", "- jobs/s"]);
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
}

#[test]
fn a_paused_picture_stays_and_then_shows_the_present() {
    let pool = cpu(1).start();
    let mut terminal = watched(&pool);
    terminal.press("p");
    terminal.until(&["PAUSED"]);
    pool.cli(&["kill", "cpu0"]).run().output();
    pool.until("cpu0", "replaced", |slot| slot.generation == 2 && slot.state == WorkerState::Ready);
    terminal.press("?");
    terminal.until(&["choose a worker"]);
    terminal.press("?");
    terminal.until(&["PAUSED", "cpu0#1 grid  ready"]);
    terminal.press("p");
    terminal.until(&["cpu0#2 grid  ready"]);
}

#[test]
fn a_resized_terminal_is_redrawn() {
    let pool = cpu(1).start();
    let mut terminal = watched(&pool);
    terminal.until(&["ITEMS/S RST TREND"]);
    terminal.resize(40, 10);
    terminal.until_so("fewer columns", |text| {
        text.contains("cpu0#1 ready") && text.lines().all(|line| line.chars().count() <= 40)
    });
    terminal.resize(120, 40);
    terminal.until(&["ITEMS/S RST TREND"]);
    // As after a line that something else has written.
    terminal.press("\x0c");
    terminal.until(&["ITEMS/S RST TREND"]);
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
}

#[test]
fn unwanted_colours_are_left_out() {
    let pool = cpu(1).start();
    for (value, wants) in [("", true), ("1", false)] {
        let mut command = top(&pool, &["--every", "0.1"]);
        command.env("NO_COLOR", value);
        let mut terminal = Terminal::start(&command, 80, 24);
        terminal.until(&["cpu0#1"]);
        terminal.press("q");
        assert_eq!(terminal.is_given_back(), Some(0));
        let text = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        assert_eq!(text.contains("\x1b[38;5;"), wants, "{text:?}");
    }
}

#[test]
fn top_sleeps_between_snapshots() {
    let pool = cpu(1).start();
    let terminal = Terminal::start(&top(&pool, &["--every", "3600"]), 80, 24);
    terminal.until(&["cpu0#1", "? help"]);
    let before = ticks(terminal.process.pid());
    pause(Duration::from_secs(1), &AtomicBool::new(false));
    let used = ticks(terminal.process.pid()) - before;
    assert!(used <= 5, "{used} ticks of 10 ms in a second with nothing to do");
}

#[test]
fn without_a_terminal_top_prints_one_plain_table() {
    let pool = cpu(2).start();
    serves(&pool.client());
    let text = pool.cli(&["top", "--every", "0.1"]).run().output();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("gridpool "), "{text}");
    assert!(lines[1].starts_with("1 accepted: 1 OK, 0 FAILED, "), "{text}");
    assert!(lines[2].starts_with("0 jobs/s, 0 items/s; 0 wait, 0B"), "{text}");
    assert_eq!(lines[3].split_whitespace().next(), Some("WORKER"));
    let workers = lines[4..].iter().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>());
    let want = [["cpu0#1", "grid", "ready"], ["cpu1#1", "grid", "ready"]];
    assert_eq!(workers.collect::<Vec<_>>(), want.map(Vec::from), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn without_a_pool_top_ends_with_an_error_and_leaves_the_terminal_alone() {
    let pool = cpu(1).start();
    let command = top(&pool, &[]);
    let plain = ["top", "--socket", "/nowhere/pool.sock"];
    crate::command::gridpool(plain)
        .run()
        .complains(69, &["no pool is running at /nowhere/pool.sock"]);
    pool.killed();
    let mut terminal = Terminal::start(&command, 80, 24);
    // What it wrote last may come after its end.
    terminal.until(&["gridpool: no pool is running at "]);
    assert_eq!(terminal.is_given_back(), Some(69));
    let text = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(!text.contains("\x1b[?1049"), "{text}");
}
