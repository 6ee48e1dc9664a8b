"""Runs compose.yaml and the Deployment as processes of this machine: no container is made.

Each service has a loopback address of its own in place of its name and of 0.0.0.0, so its ports, arguments, config
files and environment are those of the file; NATS's servers are told their address besides. What is mounted lies in a
folder for each service. Of the images it has Prometheus's flags, and what supervisor/Dockerfile says.

try.py BINARIES
"""

import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlsplit

import yaml

DEPLOY = Path(__file__).resolve().parent
COMPOSE = DEPLOY / "compose"
# How long anything may take to be so.
LIMIT_S = 60
PROMETHEUS = "--config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus"
GRIDS, TURNED = "[[[1,2],[3,4]]]\n", [[[[3, 1], [4, 2]]]]


def must(is_so, why):
    """Ends this unless it is so."""
    if not is_so:
        sys.exit(why)


def eventually(what, ask):
    """What `ask` gives once that is something."""
    until, said = time.monotonic() + LIMIT_S, None
    while time.monotonic() < until:
        try:
            said = ask()
            if said:
                return said
        except (OSError, KeyError, ValueError) as error:
            said = error
        time.sleep(0.05)
    sys.exit(f"{what}: not within {LIMIT_S} s: {said!r}")


def read(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def data(url):
    return json.loads(read(url))["data"]


def dockerfile():
    """Entry point, health check and environment of the pool's image."""
    text = (DEPLOY.parent / "Dockerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
    check = json.loads(re.search(r"^HEALTHCHECK .* CMD (.*)$", text, re.M)[1])
    env = dict(word.split("=", 1) for word in re.search(r"^ENV (.*)$", text, re.M)[1].split())
    return entry, check, env


class Machine:
    """Processes, each with an address and a root folder."""

    def __init__(self, folder, binaries):
        self.folder, self.binaries = folder, binaries
        self.addresses, self.processes = {}, {}

    def address(self, name):
        # Each process of this script has a network of its own.
        number, network = len(self.addresses) + 10, os.getpid()
        return self.addresses.setdefault(name, f"127.{network >> 8 & 127 | 64}.{network & 255}.{number}")

    def inside(self, name, path):
        """Where a container's path lies."""
        place = self.folder / name / str(path).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def mapped(self, name, text):
        """A text with the names of services, and the paths of this one's container, replaced."""
        for other in sorted(self.addresses, key=len, reverse=True):
            # In a URL, or in a list of hosts: a server's own name is no host.
            text = re.sub(rf'(?:(?<=//)|(?<=[",])){re.escape(other)}(?![\w./-])', self.addresses[other], text)
        text = text.replace("0.0.0.0", self.addresses[name])
        return re.sub(r"(?<![\w:/])/(?=data|etc/|prometheus|run/)", f"{self.folder / name}/", text)

    def start(self, name, words, env):
        env = {key: self.mapped(name, str(value)) for key, value in env.items()}
        own = shutil.which(words[0], path=f"{self.binaries}:{os.environ['PATH']}")
        must(own, f"{words[0]} is not there: install the packages nats-server and prometheus")
        log = open(self.folder / f"{name}.log", "w")
        self.processes[name] = subprocess.Popen(
            [own, *[self.mapped(name, word) for word in words[1:]]],
            env={"PATH": os.environ["PATH"], **env}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )

    def call(self, *words, env=None, **options):
        done = subprocess.run(
            [self.binaries / words[0], *words[1:]], env={"PATH": os.environ["PATH"], **(env or {})},
            stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, **options,
        )
        must(done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}")
        return json.loads(done.stdout)

    def is_cluster(self, url):
        status = [self.binaries / "gridpool", "cluster", "status", "--nats", url]
        return subprocess.run(status, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def end(self, name, within_s):
        """Ends a process as the container's would be; it must need no SIGKILL."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            sys.exit(f"{name} has not ended within {within_s} s of SIGTERM")
        # nats-server before 2.10 ends with 1 after SIGTERM.
        must(code in ((0, 1) if "nats" in name else (0,)), f"{name} ended with {code}:\n{self.log(name)}")

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()[-4000:]

    def kill_all(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def compose(machine):
    """Starts all services but Grafana, runs a job, and asks Prometheus."""
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    mounts = {}
    for name, service in services.items():
        machine.address(name)
        mounts[name] = {}
        for volume in service.get("volumes", []):
            source, place = volume.split(":")[:2]
            mounts[name][place] = source
            if source.startswith("."):
                file = COMPOSE / source
                must(file.is_file(), f"{name} mounts {source}, which is no file")
                inside = machine.inside(name, place)
                text = file.read_text()
                inside.write_text(machine.mapped(name, text) if file.suffix == ".yaml" else text)
            else:
                machine.inside(name, place).mkdir(exist_ok=True)
    entry, check, image_env = dockerfile()
    pools = {}
    for name, service in services.items():
        words = shlex.split(service.get("command", ""))
        image, env = service["image"], service.get("environment", {})
        if image.startswith("nats:"):
            machine.start(name, ["nats-server", *words, "-a", "0.0.0.0"], env)
        elif image == "gridpool":
            pools[name] = {**image_env, **env}
            machine.inside(name, image_env["GRIDPOOL_SOCKET"])
            machine.start(name, [*entry, *words], pools[name])
        elif image.startswith("prom/"):
            machine.start(name, ["prometheus", *PROMETHEUS.split(), "--web.listen-address=0.0.0.0:9090"], env)
        else:
            must(image.startswith("grafana/"), f"{name}: {image} is not known here")
    # The port that the machine's users see.
    published = [(name, port) for name, service in services.items() for port in service.get("ports", [])]
    nats = [name for name, port in published if port == "127.0.0.1:4222:4222"]
    must(len(nats) == 1, f"4222 is published by {nats}")
    url = f"nats://{machine.addresses[nats[0]]}"
    hosts = lambda: machine.call("gridpool", "cluster", "status", "--nats", url, "--json")["hosts"]
    eventually("the servers", lambda: machine.is_cluster(url))
    up = eventually("both pools", lambda: len([row for row in hosts() if row["pool"]]) == len(pools) and hosts())
    must({row["host"] for row in up} == {name.removeprefix("pool-") for name in pools}, f"{up}")
    said = machine.call("gridpool", "submit", "--nats", url, "--json", "rot90", "-", input=GRIDS)
    must([result["output"] for result in said["results"]] == TURNED, f"{said}")
    for name, env in pools.items():
        env = {key: machine.mapped(name, value) for key, value in env.items()}
        machine.call(*check, env=env)
    prometheus = f"http://{machine.addresses['prometheus']}:9090/api/v1"
    metric = 'sum(gridpool_cluster_jobs_total{event="published"})'
    query = f"{prometheus}/query?query={quote(metric)}"
    eventually("all targets", lambda: (targets := data(f"{prometheus}/targets")["activeTargets"])
               and len(targets) == len(pools) and all(target["health"] == "up" for target in targets))
    eventually("the job in Prometheus", lambda: data(query)["result"][0]["value"][1] == "1")
    groups = data(f"{prometheus}/rules")["groups"]
    must(groups and all(rule["health"] != "err" for group in groups for rule in group["rules"]), f"{groups}")
    grafana(machine, mounts["grafana"])
    for name in [*pools, "prometheus", *[name for name in services if name.startswith("nats")]]:
        machine.end(name, seconds(services[name].get("stop_grace_period", "10s")))


def grafana(machine, mounted):
    """What Grafana reads when it starts."""
    folder = "/etc/grafana/provisioning"
    sources = yaml.safe_load(machine.inside("grafana", f"{folder}/datasources/sources.yaml").read_text())
    [source] = sources["datasources"]
    at = urlsplit(source["url"])
    must((at.hostname, at.port) == (machine.addresses["prometheus"], 9090), f"{source}")
    boards = yaml.safe_load(machine.inside("grafana", f"{folder}/dashboards/dashboards.yaml").read_text())
    [provider] = boards["providers"]
    path = provider["options"]["path"]
    [file] = [place for place in mounted if place.startswith(f"{path}/")]
    board = json.loads(machine.inside("grafana", file).read_text())
    [chosen] = [one for one in board["templating"]["list"] if one["type"] == "datasource"]
    must(board["uid"] and chosen["query"] == source["type"], f"{chosen} finds no {source}")
    # Each panel, variable and query reads the source that is chosen, and none a source of another machine.
    uids = {uid for uid in re.findall(r'"datasource":\s*\{[^}]*"uid":\s*"([^"]*)"', json.dumps(board))}
    must(uids == {"${%s}" % chosen["name"]}, f"the dashboard reads {uids}")


def kubernetes(machine):
    """Runs the pods' container, on the CPU: its probes answer, and it ends within its grace."""
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes/pools.yaml").read_text()))
    [pod] = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"]
    [container] = pod["containers"]
    name, entry, env = "pod", dockerfile()[0], dict(dockerfile()[2])
    machine.address(name)
    for one in container["env"]:
        reference = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        must("value" in one or reference == "metadata.name", f"{one} is not known here")
        env[one["name"]] = one.get("value", "gridpool-7d9-x2x")
    for host in re.findall(r"[\w.-]+", env["GRIDPOOL_NATS"].removeprefix("nats://")):
        machine.address(host)
    servers = [host for host in machine.addresses if host.endswith(".nats")]
    routes = ",".join(f"nats://{host}:6222" for host in servers)
    for host in servers:
        machine.inside(host, "/data").mkdir()
        shutil.copy(COMPOSE / "nats.conf", machine.inside(host, "/etc/nats.conf"))
        machine.start(host, shlex.split(
            f"nats-server -c /etc/nats.conf --name {host.replace('.', '-')} -js -sd /data -a 0.0.0.0 "
            f"--cluster_name pods --cluster nats://0.0.0.0:6222 --routes {routes}"), {})
    machine.inside(name, env["GRIDPOOL_SOCKET"])
    machine.start(name, [*entry, *container["args"]], {**env, "GRIDPOOL_DEVICES": "cpu:1"})
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    def probe(kind):
        get = container[kind]["httpGet"]
        url = f"http://{machine.addresses[name]}:{ports[get['port']]}{get['path']}"
        eventually(f"{kind} {url}", lambda: read(url) is not None)

    for kind in ["startupProbe", "livenessProbe", "readinessProbe"]:
        probe(kind)
    servers_url = machine.mapped(name, env["GRIDPOOL_NATS"])
    eventually("the pod in the cluster", lambda: machine.is_cluster(servers_url))
    said = machine.call("gridpool", "submit", "--nats", servers_url, "--json", "rot90", "-", input=GRIDS)
    must(said["receipts"][0]["host"] == "gridpool-7d9-x2x", f"{said['receipts']}")
    # A drain, and what is left of it, must fit.
    config = (DEPLOY.parents[1] / "docs/src/reference/config.md").read_text()
    drain_s = int(re.search(r"^\| `drain_timeout_s` \| (\d+) s", config, re.M)[1])
    grace_s = pod["terminationGracePeriodSeconds"]
    must(drain_s + 30 <= grace_s, f"a drain of {drain_s} s does not fit {grace_s} s")
    machine.end(name, grace_s)


def alone(run, binaries):
    """Runs one of them in a folder of its own, and shows the logs if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), binaries)
        try:
            run(machine)
        except BaseException:
            for log in Path(folder).glob("*.log"):
                print(f"---- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            machine.kill_all()


def main():
    binaries = Path(sys.argv[1]).resolve()
    # They wait for most of their time.
    both = [multiprocessing.Process(target=alone, args=(run, binaries)) for run in (compose, kubernetes)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    sys.exit(any(one.exitcode for one in both))


main()
