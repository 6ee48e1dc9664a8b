"""Clusters from Python: NATS's servers, and the examples for Ray and Dask, each if it is installed."""

from __future__ import annotations

import os
import pickle
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import gridpool
import pytest
from conftest import needed

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
BATCHES = [[[[1, 2], [3, 4]]], [[[5, 6]], [[7]]], [[[0]]]]
TURNED = [[[[3, 1], [4, 2]]], [[[5], [6]], [[7]]], [[[0]]]]


@pytest.fixture
def servers(tmp_path):
    if shutil.which("nats-server") is None:
        assert "GRIDPOOL_REQUIRE_NATS_SERVER" not in os.environ, "apt-get install nats-server"
        pytest.skip("there is no nats-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Without a limit, streams may ask for a part of the disk that is free.
    config = tmp_path / "nats.conf"
    config.write_text(f"jetstream {{ store_dir: {str(tmp_path / 'streams')!r}, max_file_store: 64GB }}\n")
    command = ["nats-server", "-c", str(config), "-a", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"nats://127.0.0.1:{port}"
    server.kill()
    server.wait()


def connected(servers, **options):
    until = time.monotonic() + 60
    while True:
        try:
            return gridpool.connect(servers, **options)
        except gridpool.Error:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def test_a_cluster_runs_what_a_pool_runs(servers):
    with gridpool.Pool("cpu:1", arguments=["--nats", servers, "--nats-host", "one", "--nats-prefix", "py"]):
        with connected(servers, prefix="py") as cluster:
            results = cluster.run("rot90", BATCHES[0], priority="high")
            assert [result.tolist() for result in results] == TURNED[0]
            assert results.receipt.host == "one"
            futures = [cluster.submit("rot90", batch) for batch in BATCHES]
            found = [[result.tolist() for result in future.result(60)] for future in futures]
            assert found == TURNED
            assert cluster.socket == servers
            again = pickle.loads(pickle.dumps(cluster))
            assert [result.tolist() for result in again.run("rot90", BATCHES[1])] == TURNED[1]
            with pytest.raises(gridpool.Error, match="cluster status"):
                cluster.status()


def test_what_is_wrong_with_the_address_is_said():
    with pytest.raises(ValueError, match="HOST:PORT"):
        gridpool.connect("nats://")
    with pytest.raises(ValueError, match="are for a cluster"):
        gridpool.connect("/nowhere/pool.sock", prefix="x")
    with pytest.raises(ValueError, match="are for a cluster"):
        gridpool.connect("/nowhere/pool.sock", key="x")
    with pytest.raises(ValueError, match="write %25"):
        gridpool.connect("nats://me:100%@127.0.0.1:1")
    with pytest.raises(gridpool.Error, match="nats-key"):
        gridpool.connect("nats://127.0.0.1:1", cert="x.pem")
    with pytest.raises(gridpool.Error, match="/nowhere/x.pem cannot be read"):
        gridpool.connect("nats://127.0.0.1:1", cert="/nowhere/x.pem", key="/nowhere/x.pem")
    with pytest.raises(gridpool.Error, match="no NATS server"):
        gridpool.connect("nats://127.0.0.1:1", wait_for_pool=0)


def test_a_signal_ends_the_wait_for_a_cluster():
    def interrupt(signum, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        # Without it, this would be an error after a minute.
        with pytest.raises(KeyboardInterrupt) as caught:
            gridpool.connect("nats://127.0.0.1:1", wait_for_pool=60)
        assert caught.value.__context__ is None
    finally:
        signal.signal(signal.SIGALRM, before)


def test_ray_maps_batches_over_a_pool_on_each_node():
    ray = needed("ray")
    example = runpy.run_path(str(EXAMPLES / "ray_nodes.py"))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert list(example["map_batches"]("rot90", BATCHES)) == TURNED
    finally:
        ray.shutdown()


def test_dask_maps_batches_over_a_pool_on_each_worker(tmp_path):
    needed("distributed")
    # Its workers import the functions of the example by name.
    code = (
        "import dask_workers as d\n"
        "if __name__ == '__main__':\n"
        "    with d.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as c, d.Client(c) as k:\n"
        f"        assert d.map_batches(k, 'rot90', {BATCHES}) == {TURNED}\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    env = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    subprocess.run([sys.executable, str(script)], env=env, check=True, timeout=120)
