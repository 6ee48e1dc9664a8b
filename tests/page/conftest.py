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
# A driver without a GPU, which obeys a script: tests/stub-cuda.
STUB_CUDA = pathlib.Path(os.environ["GRIDPOOL_STUB_CUDA"])
DATA = pathlib.Path(__file__).parent.parent / "data"
AXE = pathlib.Path(os.environ["GRIDPOOL_AXE"]).read_text()
# Generous: what is measured is reported, and fails nothing.
PATIENCE_S = 30


class Pool:
    """A pool that serves HTTP, on two CPU workers if nothing else is said, and its command line."""

    def __init__(self, folder, *, with_tokens, arguments=("--devices", "cpu:2"), environment=None):
        self.folder = pathlib.Path(folder)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("GRIDPOOL_")}
        self.environment = {**ours, **(environment or {}), "GRIDPOOL_SOCKET": str(self.folder / "pool.sock"),
                            "GRIDPOOL_STATE_DIR": str(self.folder / "state")}
        self.token = ""
        arguments = [*arguments, "--http", "127.0.0.1:0", "--allow-chaos"]
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


def pool_in_folder(prepare=lambda folder: {}, **what):
    """A pool in a folder of its own, in which something may be prepared that it is started with."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gridpool-page-"))
    pool = Pool(folder, **what, **prepare(folder))
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


@pytest.fixture
def gpu_pool():
    """A pool on two GPUs of the driver that obeys a script. What it writes into the FIFO `events` NVML tells."""

    def prepare(folder):
        driver = folder / "driver"
        driver.mkdir()
        for name in ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"):
            (driver / name).symlink_to(STUB_CUDA)
        os.mkfifo(folder / "events")
        gauges = "call=nvmlDeviceGetUtilizationRates value=37; call=nvmlDeviceGetPowerUsage value=123456"
        script = f"devices=2; events={folder}/events; {gauges}"
        environment = {"LD_LIBRARY_PATH": str(driver), "XDG_CACHE_HOME": str(folder), "STUB_CUDA_SCRIPT": script,
                       "GRIDPOOL_SANDBOX_WRITE": str(folder)}
        return {"arguments": ["--devices", "0,1"], "environment": environment}

    yield from pool_in_folder(prepare, with_tokens=True)


@pytest.fixture
def model_pool():
    """A pool with a model and one whose file is none. Where there is no ONNX Runtime, the test is skipped."""

    def prepare(folder):
        broken = folder / "broken.onnx"
        broken.write_bytes(b"no model")
        good = DATA / "models" / "three_outputs.onnx"
        models = ["--model", f"three_outputs={good}", "--model", f"broken={broken}"]
        return {"arguments": ["--devices", "cpu:1", "--keep-going", *models]}

    for pool in pool_in_folder(prepare, with_tokens=True):
        missing = until(lambda: pool.status()["missing"], "the model that cannot be loaded")
        if any("ONNX Runtime" in row["why"] for row in missing):
            assert "GRIDPOOL_REQUIRE_ONNXRUNTIME" not in os.environ, missing
            pytest.skip("no ONNX Runtime (pip install onnxruntime)")
        yield pool


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
