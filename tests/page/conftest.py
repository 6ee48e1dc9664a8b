"""A pool with a page, a browser, and what both need."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import sync_playwright

GRIDPOOL = os.environ["GRIDPOOL_BIN"]
AXE = pathlib.Path(os.environ["GRIDPOOL_AXE"]).read_text()
# Generous: what is measured is reported, and fails nothing.
PATIENCE_S = 30


class Pool:
    """A pool on two CPU workers that serves HTTP, and its command line."""

    def __init__(self, folder, *, with_tokens):
        self.folder = pathlib.Path(folder)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("GRIDPOOL_")}
        self.environment = {**ours, "GRIDPOOL_SOCKET": str(self.folder / "pool.sock"),
                            "GRIDPOOL_STATE_DIR": str(self.folder / "state")}
        self.token = ""
        arguments = ["--devices", "cpu:2", "--http", "127.0.0.1:0", "--allow-chaos"]
        if with_tokens:
            made = json.loads(self.run("token", "new", "operator", "--scope", "infer,metrics,operate", "--json"))
            reader = json.loads(self.run("token", "new", "reader", "--scope", "metrics", "--json"))
            self.token, self.reader = made["token"], reader["token"]
            tokens = self.folder / "tokens"
            tokens.write_text(f"{made['line']}\n{reader['line']}\n")
            tokens.chmod(0o600)
            arguments += ["--http-tokens", str(tokens)]
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(
            [GRIDPOOL, "serve", *arguments, "--socket", self.environment["GRIDPOOL_SOCKET"]],
            env=self.environment, stdout=self.log, stderr=self.log,
        )
        self.url = "http://" + until(lambda: self.status()["http"]["address"], "an address")
        until(lambda: self.ask("/v2/health/ready").status == 200, "readiness")

    def run(self, *arguments):
        done = subprocess.run([GRIDPOOL, *arguments], env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self):
        return json.loads(self.run("status", "--json"))

    def ask(self, path, body=None, token=None):
        headers = {"Authorization": f"Bearer {token or self.token}"} if token or self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=PATIENCE_S)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.log.close()


def until(look, what):
    """What `look` gives, once it gives something."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            if found := look():
                return found
            why = "nothing yet"
        except (AssertionError, TypeError, KeyError, OSError, urllib.error.URLError) as error:
            why = error
        assert time.monotonic() < end, f"{what}: {why}"
        time.sleep(0.02)


def pool_in_folder(**what):
    folder = tempfile.mkdtemp(prefix="gridpool-page-")
    pool = Pool(folder, **what)
    try:
        yield pool
    finally:
        pool.end()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def pool():
    yield from pool_in_folder(with_tokens=True)


@pytest.fixture
def open_pool():
    yield from pool_in_folder(with_tokens=False)


@pytest.fixture
def short_pool():
    """A pool that a test may drain."""
    yield from pool_in_folder(with_tokens=True)


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        # Its sandbox needs a user other than root; what it loads here is ours.
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Opened:
    """A page in a browser of its own, and what its console said."""

    def __init__(self, browser, pool, *, token=None, scheme="light", width=1280, height=900):
        self.pool, self.said = pool, []
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.page.on("console", lambda message: self.said.append((message.type, message.text)))
        self.page.on("pageerror", lambda error: self.said.append(("error", str(error))))
        self.page.goto(pool.url + "/")
        if token is None:
            token = pool.token
        if token:
            # Before it has a token, the stream is refused, which the browser notes.
            self.page.wait_for_selector("#link.lost")
            self.said.clear()
            self.page.click("#token-open")
            self.page.fill("#token", token)
            self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#workers td.state")

    def errors(self):
        return [text for kind, text in self.said if kind in ("error", "warning")]

    def close(self):
        self.context.close()


@pytest.fixture
def opened(browser):
    """Opens pages that end with the test, none of which may have logged an error."""
    pages = []

    def start(pool, **how):
        pages.append(Opened(browser, pool, **how))
        return pages[-1]

    yield start
    said = [error for one in pages for error in one.errors()]
    for one in pages:
        one.close()
    assert said == []
