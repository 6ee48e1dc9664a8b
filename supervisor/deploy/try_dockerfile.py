"""Builds the last stage of supervisor/Dockerfile of the binaries in a folder, by buildah and without a Docker daemon,
and does what a container engine does with it: serve, check the health, stop.

What stands for debian:bookworm-slim is made by mmdebstrap of this machine's Debian, whose C library the binaries need.
The stage that compiles is left out. Nothing is isolated but the root folder: `try_image` runs the whole image.

try_dockerfile.py base STORE       makes the base, and the file STORE/base if that could be done
try_dockerfile.py STORE BINARIES   builds and runs
"""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

DOCKERFILE = Path(__file__).resolve().parents[1] / "Dockerfile"
# How long the pool may take to serve, and to end.
LIMIT_S = 60
BASE, IMAGE = "docker.io/library/debian:bookworm-slim", "localhost/gridpool"
SOCKET = "/run/gridpool/pool.sock"
GRIDS, TURNED = "[[[1,2],[3,4]]]\n", [[[[3, 1], [4, 2]]]]


def must(is_so, why):
    """Ends this unless it is so."""
    if not is_so:
        sys.exit(why)


def call(*command, **options):
    """Runs a command, and returns its output. An error ends this."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)
    must(done.returncode == 0, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


class Store:
    """Images and containers of buildah in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.options = ["--root", folder / "images", "--runroot", folder / "run"]

    def call(self, command, *words, **options):
        return call("buildah", command, *self.options, *words, **options)

    def make_base(self):
        """The packages that every Debian has, and what makes users. As slim as Debian's."""
        suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
        slim = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ["doc", "info", "locale", "man"]]
        archive = self.folder / "base.tar"
        call("mmdebstrap", "--quiet", "--mode=root", "--variant=essential", "--include=passwd", *slim, suite, archive)
        container = self.call("from", "scratch")
        self.call("add", "--quiet", container, archive, "/")
        # What cannot be here fails now.
        call(*self.command(container, "useradd", "--help"))
        self.call("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()
        (self.folder / "base").touch()

    def build(self, binaries):
        """The last stage, which takes the binaries from where the first leaves them. Returns what the image says."""
        context, release = self.folder / "context", self.folder / "build/src/target/release"
        for folder in [context, release]:
            folder.mkdir(parents=True, exist_ok=True)
        for program in ["gridpool", "gridpool-worker"]:
            shutil.copy(binaries / program, release)
        self.call("build", "--quiet", "--isolation", "chroot", "--pull-never", "--format", "docker",
                  "--build-context", f"build={self.folder / 'build'}", "-f", DOCKERFILE, "-t", IMAGE, context)
        return json.loads(self.call("inspect", "--type", "image", IMAGE))["Docker"]["config"]

    def command(self, container, *words):
        return ["buildah", "run", *self.options, "--isolation", "chroot", container, "--", *words]

    def run(self, container, *words, **options):
        return subprocess.run(self.command(container, *words), text=True, capture_output=True, **options)


def kill(pid):
    """Ends a process and all that it has started."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
        for child in [int(child) for one in lists for child in one.read_text().split()]:
            kill(child)
        os.kill(pid, signal.SIGKILL)


def serves(store, config):
    """Whether the pool of the image serves, is healthy, works and ends."""
    container = store.call("from", "--pull-never", IMAGE)
    pool = subprocess.Popen(store.command(container, *config["Entrypoint"], *config["Cmd"], "--devices", "cpu:1"))
    try:
        works(store, container, config, pool)
    finally:
        if pool.poll() is None:
            kill(pool.pid)
        pool.wait()
        store.call("rm", container)


def works(store, container, config, pool):
    kind, *check = config["Healthcheck"]["Test"]
    must(kind == "CMD", f"the health check is {config['Healthcheck']}")
    until = time.monotonic() + LIMIT_S
    while (health := store.run(container, *check)).returncode != 0:
        must(pool.poll() is None, f"the pool has ended with {pool.returncode}")
        must(time.monotonic() < until, f"not healthy within {LIMIT_S} s: {health.stderr}")
        time.sleep(0.5)
    supervisor = json.loads(health.stdout)["supervisor"]
    must(supervisor["socket"] == SOCKET, f"clients in other containers find {SOCKET}, not {supervisor['socket']}")
    pid = supervisor["pid"]
    user = Path(f"/proc/{pid}").stat()
    must((user.st_uid, user.st_gid) == (10001, 10001), f"the pool is of the user {user.st_uid}:{user.st_gid}")
    said = store.run(container, "gridpool", "submit", "rot90", "--json", "-", input=GRIDS)
    must(said.returncode == 0, said.stderr)
    results = [result["output"] for result in json.loads(said.stdout)["results"]]
    must(results == TURNED, f"{results}")
    os.kill(pid, getattr(signal, config["StopSignal"]))
    must(pool.wait(LIMIT_S) == 0, f"the pool has ended with {pool.returncode}")


def main():
    first, second = sys.argv[1:]
    # Containers have no settings of the tests.
    for name in [name for name in os.environ if name.startswith("GRIDPOOL_")]:
        del os.environ[name]
    if first == "base":
        shutil.rmtree(second, ignore_errors=True)
        Path(second).mkdir(parents=True, exist_ok=True)
        Store(Path(second).resolve()).make_base()
    else:
        store = Store(Path(first).resolve())
        serves(store, store.build(Path(second)))


main()
