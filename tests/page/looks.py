"""How a page looks: what sticks out, what is hard to reach or to read; and jobs to look at."""

from conftest import AXE, DATA


def run_jobs(pool, count, program="rot90"):
    grids = str(DATA / "grids.json")
    for _ in range(count):
        pool.run("submit", program, grids, "--json")


def overflow(page):
    """How far the page is wider than the window, and which elements are."""
    return page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            const all = Array.from(document.querySelectorAll('body *')).filter((one) => one.offsetParent);
            const wide = all.filter((one) => one.getBoundingClientRect().right > width + 1);
            return [document.documentElement.scrollWidth - width, wide.map((one) => one.id || one.tagName)];
        }"""
    )


def violations(page):
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
    grave = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in grave]
