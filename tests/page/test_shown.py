"""What the page shows is what the pool says: every column, of programs, of models, and of GPUs with a fault."""

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

from compare import cells, equals, seconds
from conftest import DATA, GRIDPOOL, PATIENCE_S, until
from looks import overflow, run_jobs, violations

# NVML's event of a fault, and the fault of a GPU that has fallen off the bus.
XID, OFF_THE_BUS = 8, 79
# What the page calls the times, and their family of metrics.
TIMES = {"from acceptance to dispatch": "gridpool_job_queue_seconds", "in workers": "gridpool_attempt_service_seconds",
         "from acceptance to the verdict": "gridpool_job_seconds"}


def buckets(pool, name, role):
    """How many times of each bucket were counted: by its upper end, those below it not included."""
    text = pool.ask("/metrics").read().decode()
    rows = re.findall(rf'^{name}_bucket{{role="{role}",le="([^"]+)"}} (\d+)$', text, re.MULTILINE)
    ends, sums = [float(end.replace("+Inf", "inf")) for end, _ in rows], [int(count) for _, count in rows]
    assert ends == sorted(ends) and len(ends) > 10, text[:500]
    return dict(zip(ends, (now - before for now, before in zip(sums, [0, *sums]))))


def test_every_column_is_what_the_status_says(pool, opened):
    run_jobs(pool, 3)
    pool.run("kill", "cpu1")
    until(lambda: pool.status()["workers"][1]["state"] == "ready", "another worker")
    status = equals(opened(pool).page, pool)
    assert status["workers"][1]["restart_reasons"]["killed"] >= 1


def test_the_charts_and_the_latencies_are_of_the_jobs_that_ran(short_pool, opened):
    pool = short_pool
    page = opened(pool).page
    points = lambda: page.evaluate("() => timeline.fine.length")
    run_jobs(pool, 5)
    told = points()
    until(lambda: points() >= told + 2, "the points of those seconds")
    of_table = lambda title: sum(int(text) for text in cells(page, title, "#verdicts-table"))
    until(lambda: of_table("OK") >= 5, "the verdicts in the table of seconds")
    sums = pool.status()["counters"]
    assert 5 <= of_table("accepted") <= sums["accepted"] and of_table("OK") <= sums["ok"]
    assert len(cells(page, "wait for infer", "#verdicts-table")) == len(cells(page, "wait", "#verdicts-table"))
    until(lambda: page.locator("#verdicts rect.f-v0").count() > 0, "the verdicts in their chart")
    until(lambda: page.locator("#latency polyline.r-grid").count() == 2, "the times in their chart")
    assert page.locator("#latency polyline.r-infer").count() == 0, "no model ran"
    rows = list(zip(*(cells(page, title, "#latency-table") for title in ("Role", "Time", "p50", "p90", "p99"))))
    assert [row[:2] for row in rows] == [(role, time) for role in ("grid", "infer") for time in TIMES]
    for _, time, *shares in rows[:len(TIMES)]:
        # Also of the gateway's own first job, which may have waited for a worker.
        counts = buckets(pool, TIMES[time], "grid")
        met = [end for end, count in counts.items() if count > 0]
        least = max([0, *(end for end in counts if end < min(met))])
        # It shows two or three digits.
        assert all(0.98 * least <= seconds(share) <= 1.02 * max(met) for share in shares), (shares, met)
    assert [row[2:] for row in rows[len(TIMES):]] == [("–", "–", "–")] * len(TIMES)


def test_what_runs_is_named_for_an_operator_alone(pool, opened):
    page, other = opened(pool).page, opened(pool, token=pool.reader)
    job = subprocess.Popen([GRIDPOOL, "chaos", "endless", "--deadline", "600", "--random"], env=pool.environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: any(text.endswith(": rot90") for text in cells(page, "Runs")), "the program")
        busy = next(worker for worker in pool.status()["workers"] if worker["run"])
        shown = lambda of: next(text for text in cells(of, "Runs") if text.startswith(busy["run"]["job"]))
        until(lambda: shown(other.page), "the same job")
        assert re.fullmatch(r"job\d+, 1 items, \S+ \S+: rot90", shown(page))
        assert re.fullmatch(r"job\d+, 1 items, \S+ \S+", shown(other.page)), "what it is, is for operators"
        # Its second attempt ends well.
        pool.run("kill", busy["name"])
        assert job.wait(PATIENCE_S) is not None
    finally:
        job.kill()
        job.wait()
    # The browser notes the refusals.
    assert all("403" in error for error in other.errors())
    other.said.clear()


def test_the_denylist_is_shown_and_a_job_on_it_is_released_by_keyboard(short_pool, opened):
    pool = short_pool
    # Who asks for the status is a client then, and not only while it asks.
    run_jobs(pool, 1)
    page, other = opened(pool).page, opened(pool, token=pool.reader)
    equals(page, pool)
    pool.run("chaos", "segv", "--attempts", "2", "--random", "--json")
    (denied,) = pool.status()["denylist"]["latest"]
    assert denied["what"], "this is an operator"
    equals(page, pool)
    equals(other.page, pool, as_operator=False)
    assert denied["content"] in pool.run("status")
    assert violations(page) == []
    page.locator("#denylist button").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#ask[open]")
    assert page.locator("#ask-title").text_content() == f"Release job {denied['content'][:12]}?"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#denylist td").count() == 0, "no job to be refused")
    assert pool.status()["denylist"] == {"contents": 0, "latest": []}
    # The browser notes the refusals.
    assert all("403" in error for error in other.errors())
    other.said.clear()


def test_models_have_their_readiness_and_the_rates_of_all_clients(model_pool, opened):
    pool = model_pool
    page = opened(pool).page
    column = lambda title: dict(zip(cells(page, "Model", "#models"), cells(page, title, "#models")))
    until(lambda: column("Ready").get("three_outputs") == "yes", "the model")
    why = next(row["why"] for row in pool.status()["missing"] if row["model"] == "broken")
    until(lambda: column("Ready")["broken"].startswith("no: "), "the one that is broken")
    assert why in column("Ready")["broken"] or column("Ready")["broken"].removeprefix("no: ") in why
    assert column("Workers")["three_outputs"] == "1"
    rates = {"Jobs/s of all clients": set(), "Items/s over HTTP and gRPC": set()}

    def seen(title, wanted):
        rates[title].add(column(title)["three_outputs"])
        return wanted in rates[title] if wanted else rates[title] - {"–", "0"}

    # By the socket, of which the gateway knows nothing.
    until(lambda: seen("Jobs/s of all clients", "0") and seen("Items/s over HTTP and gRPC", "0"), "rates at rest")
    rates = {title: set() for title in rates}
    with ThreadPoolExecutor(1) as aside:
        load = aside.submit(lambda: [pool.run("infer", "three_outputs", str(DATA / "three_outputs.npy"))
                                     for _ in range(20)])
        until(lambda: seen("Jobs/s of all clients", None), "the rate of all clients")
        load.result()
    seen("Items/s over HTTP and gRPC", None)
    assert rates["Items/s over HTTP and gRPC"] == {"0"}
    assert column("Items over HTTP and gRPC")["three_outputs"] == "0"
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    assert pool.ask("/v2/models/three_outputs/infer", body).status == 200
    until(lambda: column("Items over HTTP and gRPC")["three_outputs"] == "1", "the one over HTTP")
    equals(page, pool)
    assert violations(page) == []
    narrow = opened(pool, width=360).page
    until(lambda: cells(narrow, "Model", "#models"), "the models")
    narrow.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert overflow(narrow) == [0, []]
    assert violations(narrow) == []


def test_a_gpu_that_is_out_of_service_is_shown_and_released_by_keyboard_on_a_phone(gpu_pool, opened):
    pool = gpu_pool
    until(lambda: all(worker["state"] == "ready" for worker in pool.status()["workers"]), "both workers")
    until(lambda: pool.status()["monitor"]["up"], "the monitor")
    # Who asks for the status is a client then, and not only while it asks.
    run_jobs(pool, 1)
    page = opened(pool, width=360).page
    equals(page, pool)
    assert (cells(page, "Utilisation", "#gpus"), cells(page, "Power", "#gpus")) == (["37 %"] * 2, ["123 W"] * 2)
    pool.run("chaos", "segv", "--attempts", "2", "--random", "--json")
    (pool.folder / "events").write_text(f"0 {XID} {OFF_THE_BUS}\n")
    until(lambda: pool.status()["quarantines"], "a GPU out of service")
    status = equals(page, pool)
    assert [row["device"] for row in status["quarantines"]] == ["gpu0"] and status["denylist"]["contents"] == 1
    assert cells(page, "Tried again", "#quarantines") == ["by an operator"]
    assert "off the bus" in page.locator("#faults").text_content()
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert overflow(page) == [0, []]
    assert violations(page) == []
    until(lambda: page.locator("#lines rect.f-o").count() > 0, "it in the timeline")
    release = page.locator("#quarantines button")
    assert release.get_attribute("aria-label") == "Release gpu0"
    release.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#ask[open]")
    assert violations(page) == []
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ask[open]", state="detached")
    until(lambda: [row["state"] for row in pool.status()["workers"]] == ["ready", "ready"], "the GPU to be back")
    assert equals(page, pool)["quarantines"] == []
    assert page.locator("#quarantines td").count() == 0


def test_every_control_is_reached_by_tab_alone(pool, opened):
    page = opened(pool).page
    run_jobs(pool, 1)
    (latest,) = pool.run("jobs", "--json", "--last", "1").splitlines()
    job = json.loads(latest)["receipt"]["job"]
    until(lambda: cells(page, "Job", "#last-verdicts")[:1] == [job], "the last verdict")
    # Nothing more comes: what is there stays.
    page.evaluate("() => { stream.abort(); document.activeElement.blur(); }")
    all_controls = page.evaluate(
        """() => {
            const controls = document.querySelectorAll('a, button, select, input, textarea, summary');
            window.wanted = Array.from(controls).filter((one) => one.offsetParent && !one.closest('dialog'));
            return window.wanted.length;
        }"""
    )
    reached = set()
    for _ in range(all_controls + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => window.wanted.indexOf(document.activeElement)"))
    others = "(reached) => window.wanted.filter((_, at) => !reached.includes(at)).map((one) => one.outerHTML)"
    left = page.evaluate(others, list(reached))
    assert all_controls > 15 and left == []


def test_a_verdict_is_found_by_its_job(pool, opened):
    run_jobs(pool, 3)
    one = opened(pool)
    page = one.page
    shown = lambda: cells(page, "Job", "#last-verdicts")
    until(lambda: len(shown()) >= 3, "the last verdicts")
    job = shown()[2]

    def look_up(text):
        page.fill("#job", text)
        page.keyboard.press("Enter")

    look_up(job)
    until(lambda: shown() == [job], "the one")
    look_up("job999999")
    until(lambda: "gridpool jobs job999999" in page.locator("#last-verdicts").text_content(), "where to look")
    look_up("999999")
    until(lambda: "`999999` names no job" in page.locator("#last-verdicts-note").text_content(), "what to write")
    look_up("")
    until(lambda: len(shown()) >= 3, "all again")
    # The browser notes the question that was none.
    assert all("400" in error for error in one.errors()), one.errors()
    one.said.clear()
