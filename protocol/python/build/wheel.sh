#!/usr/bin/env bash
# Builds the wheel that people install: release, manylinux_2_28, with both binaries. Needs cargo and Python with venv.
# usage: protocol/python/build/wheel.sh FOLDER
set -euo pipefail
out=$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$here/../.." && pwd)
venv=$root/target/wheel-venv
[ -x "$venv/bin/python3" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ziglang 'cargo-zigbuild>=0.20'
export PATH="$venv/bin:$PATH" VIRTUAL_ENV=$venv
triple=x86_64-unknown-linux-gnu
cd "$root"
cargo zigbuild --release --locked -p gridpool -p gridpool-worker --target "$triple.2.28"
GRIDPOOL_BINARIES=$root/target/$triple/release MATURIN_PEP517_ARGS="--zig --compatibility manylinux_2_28" \
    "$venv/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$out" "$here"
ls -l "$out"
