#!/usr/bin/env python3
"""Makes the modules of kernels/ptx from kernels/cuda with one fixed compiler: NVRTC 12.0.140.

gridpool.ptx is what every worker loads, solve.ptx what it loads at its first solver, solve_far.ptx what it loads
when values do not fit shared memory or the GPU is an old one, search.ptx and search_far.ptx the same for searches, template.ptx and template_far.ptx for those of templates, chaos.ptx what `gridpool chaos` needs. The headers opcodes.cuh and solver_ops.cuh are no files: they come from the tables of
ops in protocol/src/program/ops.rs and protocol/src/solver/table.rs. The first line of a module has the digest of
its header, by which a test sees that an op was added and the kernels were not compiled again.

    kernels/build_ptx.py              write the PTX
    kernels/build_ptx.py --check      fail if what is committed is not what the sources give
    kernels/build_ptx.py --unchanged  fail unless sources, scripts and PTX are those of its last run, by the digest in
                                      kernels/ptx/made_of; nothing is compiled. The gate does this, --check is nightly
    kernels/build_ptx.py --assemble   also assemble it and print registers and spills

PTX of version 8.0 for compute_60 loads on every driver from CUDA 12.0 on and every GPU since
Pascal; solve.ptx is for compute_80, Ampere, whose warps add up in one instruction. The compiler comes from its PyPI wheel into target/nvrtc; nothing is installed. Sources go
to it by name, not by path, so the result is the same in every checkout.

jump_tables.py puts jump tables over opcodes into what the compiler gives.

The modules of solvers and searches are large. They are kept packed, as solve.ptx.z, and so is what ptxas, from another wheel, makes of
them for sm_90, as solve.sm_90.z: a driver that compiles them itself takes seconds.
"""

import argparse
import ctypes
import glob
import hashlib
import multiprocessing
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib

from jump_tables import with_jump_tables

KERNELS = pathlib.Path(__file__).resolve().parent
CUDA = KERNELS / "cuda"
PTX = KERNELS / "ptx"
MADE_OF = PTX / "made_of"
MODULES = {"gridpool": 60, "chaos": 60, "solve": 80, "solve_far": 60, "search": 80, "search_far": 60,
           "template": 80, "template_far": 60}
CACHE = KERNELS.parent / "target" / "nvrtc"

NVRTC_WHEEL = "nvidia-cuda-nvrtc-cu12==12.0.140"
NVCC_WHEEL = "nvidia-cuda-nvcc-cu12==12.9.86"
OPTIONS = ["--std=c++17"]
ASSEMBLE_FOR = [60, 80, 90]
# The modules that are kept packed, with machine code for this GPU.
PACKED = ["solve", "solve_far", "search", "search_far", "template", "template_far"]
CUBIN_FOR = 90


def fetched(wheel: str, inside: str) -> pathlib.Path:
    """The file `inside` of a wheel, downloaded and unpacked once."""
    folder = CACHE / wheel.replace("==", "-")
    if not (folder / "unpacked").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", folder, wheel], check=True)
        with zipfile.ZipFile(glob.glob(f"{folder}/*.whl")[0]) as archive:
            archive.extractall(folder)
        (folder / "unpacked").touch()
    return folder / inside


class Nvrtc:
    """The four calls of NVRTC that make PTX of a program."""

    def __init__(self) -> None:
        library = fetched(NVRTC_WHEEL, "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
        self.library = ctypes.CDLL(str(library))

    def call(self, name: str, *arguments) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} gave {code}")

    def text(self, program: ctypes.c_void_p, what: str) -> str:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, source: pathlib.Path, capability: int, headers: dict[str, str]) -> str:
        def strings(texts):
            return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])

        options = [f"--gpu-architecture=compute_{capability}", *OPTIONS]
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            source.read_bytes(),
            source.name.encode(),
            len(headers),
            strings(headers.values()),
            strings(headers),
        )
        try:
            self.call("nvrtcCompileProgram", program, len(options), strings(options))
        except RuntimeError as error:
            raise RuntimeError(f"{self.text(program, 'ProgramLog')}\n{error}") from error
        return with_jump_tables(self.text(program, "PTX"))


# The header of opcodes of each module that has one, and what the example must be told to print it.
SOLVERS = ("solver_ops.cuh", "solvers")
OPCODES = {"gridpool": ("opcodes.cuh", "chains")} | dict.fromkeys(PACKED, SOLVERS)


def opcodes(which: str) -> str:
    """A header of opcodes."""
    command = ["cargo", "run", "--quiet", "--package=gridpool-kernels", "--example=opcodes", which]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=KERNELS).stdout


def assembled(ptx: str, target: int) -> tuple[bytes, str]:
    """Machine code for sm_`target`, and what the assembler says of it."""
    ptxas = fetched(NVCC_WHEEL, "nvidia/cuda_nvcc/bin/ptxas")
    ptxas.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "module.ptx").write_text(ptx)
        command = [ptxas, "--verbose", f"--gpu-name=sm_{target}", "module.ptx", "--output-file=module.cubin"]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stderr
        return (pathlib.Path(folder) / "module.cubin").read_bytes(), told


def assemble(modules: dict[str, str]) -> None:
    for target in ASSEMBLE_FOR:
        for module in [module for module, capability in MODULES.items() if capability <= target]:
            _, told = assembled(modules[module], target)
            pattern = r"function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers"
            for kernel, spilled, registers in re.findall(pattern, told, re.DOTALL):
                print(f"sm_{target} {module} {kernel}: {registers} registers, {spilled} bytes spilled")


def module_files(module: str, headers: dict[str, str]) -> tuple[str, dict[str, bytes]]:
    """The PTX of a module, and what its files hold, unpacked."""
    ptx = Nvrtc().compile(CUDA / f"{module}.cu", MODULES[module], headers)
    if module in OPCODES:
        name, _ = OPCODES[module]
        digest = hashlib.sha256(headers[name].encode()).hexdigest()
        ptx = f"// {name} {digest}\n{ptx}"
    if module not in PACKED:
        return ptx, {f"{module}.ptx": ptx.encode()}
    cubin, _ = assembled(ptx, CUBIN_FOR)
    return ptx, {f"{module}.ptx.z": ptx.encode(), f"{module}.sm_{CUBIN_FOR}.z": cubin}


def digest() -> str:
    """Of the sources, the scripts and the PTX, whose first lines have the digests of the headers: tests compare those."""
    sources = [*sorted(CUDA.glob("**/*")), *sorted(KERNELS.glob("*.py")), *sorted(PTX.iterdir())]
    sources = [path for path in sources if path.is_file() and path != MADE_OF]
    files = [(str(path.relative_to(KERNELS)), path.read_bytes()) for path in sources]
    whole = hashlib.sha256()
    for name, content in files:
        whole.update(f"{name} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="fail if the committed PTX differs")
    parser.add_argument("--unchanged", action="store_true", help="fail if anything has changed since the PTX was made")
    parser.add_argument("--assemble", action="store_true", help="print registers and spills")
    arguments = parser.parse_args()

    if arguments.unchanged:
        if MADE_OF.read_text() != f"{digest()}\n":
            raise SystemExit("kernels/ptx was made of other sources: run kernels/build_ptx.py and commit the result")
        return
    headers = {name: opcodes(which) for name, which in OPCODES.values()}
    fetched(NVRTC_WHEEL, ""), fetched(NVCC_WHEEL, "")
    sources = sorted(CUDA.glob("**/*.cuh"))
    headers |= {str(source.relative_to(CUDA)): source.read_text() for source in sources}
    # Each module has a process of its own: NVRTC numbers the calls that it compiles in its process.
    with multiprocessing.Pool(maxtasksperchild=1) as processes:
        made = processes.starmap(module_files, [(module, headers) for module in MODULES], chunksize=1)
    modules = {module: ptx for module, (ptx, _) in zip(MODULES, made)}
    files = {name: content for _, own in made for name, content in own.items()}
    for name, content in files.items():
        kept, is_packed = PTX / name, name.endswith(".z")
        if not arguments.check:
            PTX.mkdir(exist_ok=True)
            kept.write_bytes(zlib.compress(content, 9) if is_packed else content)
            continue
        was = kept.read_bytes() if kept.exists() else b""
        if (zlib.decompress(was) if is_packed and was else was) != content:
            raise SystemExit(
                f"kernels/ptx/{name} is not what kernels/cuda gives: "
                "run kernels/build_ptx.py and commit the result"
            )
    if not arguments.check:
        MADE_OF.write_text(f"{digest()}\n")
    if arguments.assemble:
        assemble(modules)


if __name__ == "__main__":
    main()
