"""Makes the archive and the Debian package of the binaries in a folder, unpacks each, and runs a job with it.

The package is what `[package.metadata.deb]` of Cargo.toml says, built by dpkg-deb: cargo-deb itself, which the release
workflow uses, takes minutes to build. Nothing is installed here: the workflow does that, by deb/trial.

try.py BINARIES
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CRATE = ROOT / "supervisor"
# What dpkg runs.
SCRIPTS = ["postinst", "prerm", "postrm"]
# What a field of the control file is called in the metadata.
FIELDS = {"maintainer": "Maintainer", "section": "Section", "recommends": "Recommends"}


def call(*command, **options):
    """Runs a command, and returns its output. An error ends this."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def runs_a_job(program):
    """Whether a grid comes back turned."""
    said = call(program, "run", "rot90", "--devices", "cpu:1", "--json", input="[[[1,2],[3,4]]]\n")
    results = json.loads(said)["results"]
    if [result["output"] for result in results] != [[[[3, 1], [4, 2]]]]:
        sys.exit(f"{program}: rot90 of [[1, 2], [3, 4]] is [[3, 1], [4, 2]], but this came back: {results}")


def control(package, deb, version):
    """The text of the control file. `$auto` stands for the libraries of the binaries."""
    fields = {"Package": package["name"], "Version": version, "Architecture": "amd64"}
    fields |= {name: deb[key] for key, name in FIELDS.items()}
    fields["Depends"] = deb["depends"].replace("$auto", "libc6")
    lines = [line or "." for line in deb["extended-description"].strip().splitlines()]
    fields["Description"] = "\n ".join([package["description"], *lines])
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def package_root(folder, binaries):
    """The tree of the package, as dpkg-deb takes it."""
    package = tomllib.loads((CRATE / "Cargo.toml").read_text())["package"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    deb = package["metadata"]["deb"]
    tree = folder / "package"
    for source, place, mode in deb["assets"]:
        built = source.removeprefix("target/release/")
        found = [binaries / built] if built != source else sorted(map(Path, glob.glob(str(CRATE / source))))
        if not found:
            sys.exit(f"{source}: the package names it, and it is not there")
        for file in found:
            target = tree / place / file.name if place.endswith("/") else tree / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
            target.chmod(int(mode, 8))
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(control(package, deb, version))
    for name in SCRIPTS:
        script = tree / "DEBIAN" / name
        script.write_text((CRATE / deb["maintainer-scripts"] / name).read_text().replace("#DEBHELPER#\n", ""))
        script.chmod(0o755)
        call("sh", "-n", script)
    return tree


def main():
    binaries = Path(sys.argv[1]).resolve()
    # What runs here has no settings of the tests.
    for name in [name for name in os.environ if name.startswith("GRIDPOOL_")]:
        del os.environ[name]
    for tool in ["dpkg-deb", "systemd-analyze"]:
        if not shutil.which(tool):
            sys.exit(f"{tool} is not there: install the packages dpkg and systemd")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call(CRATE / "deb/archive", "gridpool-try", binaries, folder)
        (folder / "archive").mkdir()
        call("tar", "-C", folder / "archive", "--strip-components", "1", "-xzf", folder / "gridpool-try.tar.gz")
        runs_a_job(folder / "archive/gridpool")
        shutil.rmtree(folder / "archive")
        tree = package_root(folder, binaries)
        file, unpacked = folder / "gridpool.deb", folder / "root"
        # Not packed: that takes longer than all else here.
        call("dpkg-deb", "--build", "--root-owner-group", "-Znone", tree, file)
        call("dpkg-deb", "-x", file, unpacked)
        # The worker is found beside it.
        runs_a_job(unpacked / "usr/bin/gridpool")
        units = unpacked / "usr/lib/systemd/system"
        unit = units / "gridpool.service"
        # The program is not installed where the manager looks for it.
        unit.write_text(unit.read_text().replace("ExecStart=", f"ExecStart={unpacked}/usr/bin/"))
        os.environ["SYSTEMD_UNIT_PATH"] = f"{units}:/usr/lib/systemd/system"
        call("systemd-analyze", "verify", "--recursive-errors=no", unit, units / "gridpool.socket")
        # In tenths: less than 3.
        call("systemd-analyze", "--offline=true", "security", "--threshold=29", unit)


main()
