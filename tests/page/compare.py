"""What the page must show of a status, column by column, in the page's own words for numbers."""

import re

from conftest import until


def cells(page, title, part="#workers"):
    """The texts of a column."""
    return page.eval_on_selector_all(f"{part} td[data-label='{title}']", "all => all.map(one => one.textContent)")


def tiles(page):
    read = "all => all.map(one => [one.children[0].textContent, one.children[1].textContent])"
    return dict(page.eval_on_selector_all("#overview > div", read))


def number(value):
    return f"{value:,}"


def known(value, write):
    return "–" if value is None else write(value)


def size(value):
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    unit = 0
    while value >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {units[unit]}" if value < 10 and unit else f"{int(value + 0.5)} {units[unit]}"


def seconds(text):
    """A time on the page, in seconds."""
    value, unit = text.split(" ")
    return float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}[unit]


def runs(run):
    """What a worker runs, but for how long."""
    more = f" and {run['jobs'] - 1} more" if run["jobs"] > 1 else ""
    return f"{run['job']}{more}, {number(run['items'])} items, "


def restarts(worker):
    why = ", ".join(f"{number(count)} {reason}" for reason, count in sorted(worker["restart_reasons"].items()))
    return number(worker["restarts"]) + (f" ({why})" if why else "")


def compare_workers(page, status):
    workers, gpus = status["workers"], {gpu["name"]: gpu for gpu in status["devices"]}
    texts = {
        "Worker": lambda worker: worker["name"],
        "Group": lambda worker: worker["group"],
        "State": lambda worker: worker["state"],
        "Jobs": lambda worker: number(worker["jobs_done"]),
        "Restarts": restarts,
        "Last fault": lambda worker: worker["last_fault"],
        "Order": lambda worker: "Kill" if worker["pid"] else "",
    }
    for title, text in texts.items():
        assert cells(page, title) == [text(worker) for worker in workers], title
    rows = zip(workers, *(cells(page, title) for title in ("Runs", "Utilisation", "Memory", "Jobs/s", "Items/s")))
    for worker, what, busy, memory, *rates in rows:
        gpu = gpus.get(worker["name"].split("#")[0])
        assert what.startswith(runs(worker["run"])) if worker["run"] else what == "", (what, worker)
        if gpu:
            assert busy == known(gpu["busy_percent"], lambda value: f"{value} %")
            assert memory == f"{size(gpu['memory_used'])} of {size(gpu['memory_total'])}"
        else:
            # Of a share of a moment that is over.
            assert re.fullmatch(r"\d+ %|–", busy), busy
            assert memory == (size(worker["resident_bytes"]) if worker["pid"] else "–"), worker["name"]
        assert all(re.fullmatch(r"[\d,.]+|–", rate) for rate in rates), rates


def compare_devices(page, status):
    gpus = status["devices"]
    texts = {
        "GPU": lambda gpu: gpu["name"],
        "Utilisation": lambda gpu: known(gpu["busy_percent"], lambda value: f"{value} %"),
        "Memory": lambda gpu: f"{size(gpu['memory_used'])} of {size(gpu['memory_total'])}",
        "Power": lambda gpu: known(gpu["power_mw"], lambda value: f"{int(value / 1000 + 0.5)} W"),
        "Xids": lambda gpu: f"{gpu['xids']}, the last {gpu['last_xid']}" if gpu["xids"] else "0",
    }
    for title, text in texts.items():
        assert cells(page, title, "#gpus") == [text(gpu) for gpu in gpus], title
    out = status["quarantines"]
    for title, key in {"Device": "device", "Group": "group", "Why": "why"}.items():
        assert cells(page, title, "#quarantines") == [row[key] for row in out], title
    for row, tried in zip(out, cells(page, "Tried again", "#quarantines")):
        assert tried == "by an operator" if row["tried_in_us"] is None else tried.startswith("in "), tried


def compare_denylist(page, status, *, as_operator):
    latest = status["denylist"]["latest"]
    shown = lambda title: cells(page, title, "#denylist")
    assert shown("Refused") == [row["content"][:12] for row in latest]
    assert shown("Ran") == [row["what"] if as_operator else "–" for row in latest]
    assert shown("Items") == [number(row["items"]) for row in latest]
    for row, since in zip(latest, shown("For")):
        assert abs(seconds(since) - row["for_us"] / 1e6) < 60, since


def compare_rest(page, status):
    queue, rows, sums, shown = status["queue"], status["principals"], status["counters"], tiles(page)
    names = {"accepted": "accepted", "OK": "ok", "FAILED": "failed", "DEADLINE": "deadline", "POISON": "poison",
             "DEVICE_LOST": "device_lost", "CANCELLED": "cancelled", "restarts": "restarts",
             "refused as busy": "refused_busy", "refused as poison": "refused_poison"}
    assert {name: shown[name] for name in names} == {name: number(sums[key]) for name, key in names.items()}
    assert shown["jobs that wait"] == number(queue["jobs"])
    assert shown["state"] == ("draining" if status["supervisor"]["draining"] else "ready")
    assert abs(seconds(shown["up for"]) - status["supervisor"]["uptime_s"]) < 60
    assert all(re.fullmatch(r"[\d,.]+|–", shown[rate]) for rate in ("jobs a second", "items a second")), shown
    caption = page.locator("#principals caption").text_content()
    assert caption.startswith(f"{number(queue['jobs'])} jobs wait")
    assert caption.endswith(f"; the most were {number(queue['jobs_high'])}"), caption
    assert (", the oldest for " in caption) == (queue["oldest_us"] is not None), caption
    texts = {
        "Client": lambda row: f"{row['principal']} ({row['name']})" if row["name"] else row["principal"],
        "Queued": lambda row: number(row["queued"]),
        "Running": lambda row: number(row["running"]),
        "Done": lambda row: number(row["done"]),
        "Quota": lambda row: row["quota"],
    }
    for title, text in texts.items():
        assert cells(page, title, "#principals") == [text(row) for row in rows], title
    for row, time in zip(rows, cells(page, "Device time", "#principals")):
        assert abs(seconds(time) - row["device_s"]) <= 0.06 * row["device_s"] + 1e-6, (time, row)


def equals(page, pool, *, as_operator=True):
    """Waits until every column of the page that has a source in the status is that."""

    def is_equal():
        status = pool.status()
        compare_workers(page, status)
        compare_devices(page, status)
        compare_denylist(page, status, as_operator=as_operator)
        compare_rest(page, status)
        return status

    return until(is_equal, "the page to equal the status")
