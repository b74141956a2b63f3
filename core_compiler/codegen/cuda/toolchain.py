"""NVIDIA's tools from their Python packages: neither a CUDA toolkit nor a driver is needed.

NVVM (PTX), ptxas (cubin) and nvdisasm (SASS) must be from the same CUDA release: ptxas rejects the
PTX of a newer NVVM.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from core_compiler.support.errors import CANNOT_HERE, UserError

#: The required packages, which must be from one release.
PACKAGES = ("nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm")
_INSTALL = "pip install 'compiler-workbench[cuda]'"


def missing() -> str | None:
    """Return the missing or mismatched parts of numba-cuda and its tools; None if complete."""
    absent = [p for p in ("numba-cuda", *PACKAGES) if _version(p) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if len({_release(p) for p in PACKAGES}) > 1:
        listed = ", ".join(f"{p} {_version(p)}" for p in PACKAGES)
        return f"NVIDIA's compiler packages are from different CUDA releases: {listed}"
    return None


def require() -> None:
    """Raise UserError if :func:`missing` finds a problem."""
    what = missing()
    if what is not None:
        fix = pin() if "different" in what else _INSTALL
        raise UserError(f"cannot compile for CUDA: {what}", "-t cuda", fix, CANNOT_HERE)


def pin() -> str:
    """Return the packages to install so that all parts are from ptxas's release."""
    release = _release("nvidia-cuda-nvcc")
    return f"pip install {' '.join(repr(f'{p}=={release}.*') for p in PACKAGES)}"


def _release(package: str) -> str:
    """Return the CUDA release, such as ``13.5``, from a package's version."""
    return ".".join((_version(package) or "").split(".")[:2])


def versions() -> dict[str, str]:
    """Return the installed packages and their versions, for cache keys and recordings."""
    return {p: _version(p) or "" for p in ("numba-cuda", *PACKAGES)}


@functools.cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@functools.cache
def tool(name: str) -> str:
    """Return the path of ``ptxas`` or ``nvdisasm``: the Python package's, else the one on PATH."""
    folder = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    for found in sorted(folder.glob(f"cu*/bin/{name}"), reverse=True):
        if os.access(found, os.X_OK):
            return str(found)
    on_path = shutil.which(name)
    if on_path is None:
        raise UserError(f"{name} not found", "-t cuda", _INSTALL, CANNOT_HERE)
    return on_path


@functools.cache
def architectures() -> tuple[str, ...]:
    """Return the architectures that ptxas supports, as ``sm_90``, oldest first."""
    found = set(re.findall(r"'sm_(\d+)'", _run("ptxas", ["--help"], "its list of architectures")))
    return tuple(f"sm_{n}" for n in sorted(found, key=int))


@dataclass(frozen=True)
class Assembled:
    """A cubin and the resource usage that ptxas reported.

    ``registers`` of a thread, ``shared`` bytes of a block, ``stack`` bytes of a thread, ``spilled``
    bytes stored and loaded by a thread.
    """

    cubin: bytes
    registers: int
    shared: int
    stack: int
    spilled: int


_NUMBERS: Mapping[str, str] = {
    "registers": r"Used (\d+) registers",
    "shared": r"(\d+) bytes smem",
    "stack": r"(\d+) bytes stack frame",
}
_SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")


def assemble(ptx: str, architecture: str) -> Assembled:
    """Assemble ``ptx`` for an architecture such as ``sm_90``; UserError if ptxas rejects it."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        options = [f"-arch={architecture}", "-O3", "-v", "-lineinfo", str(source), "-o"]
        output = _run("ptxas", [*options, str(target)], f"compute capability {architecture}")
        cubin = target.read_bytes()
    found = {k: re.search(p, output) for k, p in _NUMBERS.items()}
    numbers = {k: int(m[1]) if m else 0 for k, m in found.items()}
    return Assembled(cubin, **numbers, spilled=sum(map(int, _SPILLS.findall(output))))


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a cubin, with ``//## File "...", line n`` comments."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        return _run("nvdisasm", ["-c", "-g", str(path)], "SASS")


def _run(name: str, arguments: Sequence[str], where: str) -> str:
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        if "Unsupported .version" in lines[0]:  # PTX of a newer release than ptxas
            nvvm, ptxas = (_version(p) for p in ("nvidia-nvvm", "nvidia-cuda-nvcc"))
            problem = f"ptxas {ptxas} rejects PTX from nvvm {nvvm}: {lines[0]}"
            raise UserError(problem, where, pin(), CANNOT_HERE)
        fix = "choose another compute capability"
        raise UserError(f"{name}: {lines[0]}", where, fix, CANNOT_HERE)
    return done.stdout + done.stderr
