"""What the page makes of its stream: one that ends, falls silent, or is of another pool, token or version."""

import socket
import threading

from conftest import until


class Way:
    """A way to a pool that can fall silent: it then passes nothing on, and closes nothing."""

    def __init__(self, pool):
        host, port = pool.url.removeprefix("http://").split(":")
        self.to = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url, self.token = f"http://127.0.0.1:{self.listener.getsockname()[1]}", pool.token
        self.is_silent = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(self.to)
            for ends in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, to):
        try:
            while data := source.recv(1 << 16):
                if not self.is_silent.is_set():
                    to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            # The browser or the pool has ended it.
            source.close()


def test_a_connection_that_falls_silent_is_not_live(open_pool, opened):
    way = Way(open_pool)
    page = opened(way).page
    assert page.locator("#link").text_content() == "live"
    way.is_silent.set()
    until(lambda: page.locator("#link").text_content() == "not connected: nothing came for 8 s", "the loss")
    way.is_silent.clear()
    page.wait_for_selector("#link.live")
    way.listener.close()


def test_deaths_of_a_pool_before_are_not_those_of_this_one(open_pool, opened):
    page = opened(open_pool).page
    shown = page.evaluate(
        """() => {
            const of = (number, at_s, worker) =>
                ({ number, at_s, worker, role: 'grid', block: `${worker} of ${at_s}` });
            const blocks = () => Array.from(document.querySelectorAll('#deaths pre'), (one) => one.textContent);
            const seen = [];
            const old = [of(1, 100, 'cpu0#1'), of(2, 101, 'cpu0#2')];
            HEARS.timeline({});
            HEARS.deaths(old);
            addDeaths([{ ...old[1], block: 'whole' }], true);
            seen.push(blocks());
            // The same pool, over another stream.
            HEARS.timeline({});
            HEARS.deaths(old);
            seen.push(blocks());
            $('news').textContent = '';
            HEARS.timeline({});
            HEARS.deaths([of(1, 200, 'cpu0#1')]);
            seen.push(blocks(), [$('news').textContent]);
            // A pool without deaths.
            HEARS.timeline({});
            HEARS.state(state);
            seen.push(blocks(), [$('deaths-note').textContent]);
            return seen;
        }"""
    )
    same = ["whole", "cpu0#1 of 100"]
    assert shown == [same, same, ["cpu0#1 of 200"], ["cpu0#1 died"], [], ["none since the pool started"]]


def test_a_token_that_is_taken_back_takes_with_it_what_it_showed(pool, opened):
    one = opened(pool)
    page = one.page
    pool.run("kill", "cpu0")
    until(lambda: page.locator("#deaths > details").count() > 0, "the death")
    until(lambda: page.locator("#deaths-note").text_content() == "", "the whole block")
    page.click("#run")
    page.wait_for_selector(".pair")
    page.click("#receipts-load")
    page.wait_for_selector("#receipts details")

    def use(token):
        page.click("#token-open")
        page.fill("#token", token)
        page.keyboard.press("Enter")
        return page.locator("#deaths > details").count(), page.locator("#receipts details").count()

    assert use("") == (0, 0)
    page.wait_for_selector("#link.lost")
    use(pool.reader)
    until(lambda: page.locator("#deaths > details").count() > 0, "the death")
    assert page.locator("#deaths-note").text_content().startswith("A token with the scope operate shows")
    assert page.locator("#receipts details").count() == 0
    # The browser notes the refusals.
    assert all("401" in error or "403" in error for error in one.errors()), one.errors()
    one.said.clear()


def test_a_drawing_that_fails_stops_no_other_and_another_version_is_told(open_pool, opened):
    one = opened(open_pool)
    page = one.page
    with page.expect_event("pageerror"):
        page.evaluate("() => { [window.kept, showRest] = [showRest, () => { throw new Error('on purpose'); }]; }")
    page.evaluate("() => { showRest = window.kept; }")
    before = page.get_attribute("body", "data-at")
    until(lambda: page.get_attribute("body", "data-at") != before, "the page to go on")
    assert one.errors()
    assert all("on purpose" in error for error in one.errors())
    one.said.clear()
    told = page.evaluate(
        """() => {
            const { status } = state;
            const was = $('reload').hidden;
            HEARS.state({ ...state, status: { ...status, supervisor: { ...status.supervisor, version: '9.9.9' } } });
            drawDue();
            return [was, $('reload').hidden, $('reload').textContent];
        }"""
    )
    assert told[:2] == [True, False] and "The pool has the version 9.9.9 now" in told[2]


def test_an_attempt_names_its_capsule_and_a_line_without_a_name_is_not_shown(open_pool, opened):
    page = opened(open_pool).page
    page.click("#run")
    page.wait_for_selector(".pair")
    text = page.evaluate(
        """async () => {
            const [{ receipt }] = (await request('v2/gridpool/receipts')).receipts;
            Object.assign(receipt.attempts[0], { outcome: 'WORKER_DIED', detail: 'signal 11', capsule: 'a-cpu0.json' });
            return facts(receipt).querySelector('td[data-label=Outcome]').textContent;
        }"""
    )
    assert text == "WORKER_DIED: signal 11; capsule a-cpu0.json"
    names = page.evaluate(
        """() => {
            timeline.lines = ['cpu0 a', '', 'cpu2 c'];
            drawTimeline();
            return Array.from(document.querySelectorAll('#lines-table tbody tr'), (row) => row.cells[0].textContent);
        }"""
    )
    assert names == ["cpu0 a", "cpu2 c"]
    twice = page.evaluate(
        """() => {
            const parent = node('ul');
            for (let turn = 0; turn < 3; turn += 1) keep(parent, ['a', 'a', 'b'], String, () => node('li'), say);
            return Array.from(parent.children, (child) => child.textContent);
        }"""
    )
    assert twice == ["a", "a", "b"]
