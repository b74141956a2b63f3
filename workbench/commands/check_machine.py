"""``workbench doctor``: the capabilities of this machine, and fixes for missing ones."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from core_compiler import __version__
from workbench.commands.printing import emit, painter, table

DISTRIBUTION = "compiler-workbench"
PYTHON = (3, 11)
#: Packages that every compile needs, and the extra that installs each other one.
REQUIRED = {"numpy": "", "numba": "", "llvmlite": "", "ml_dtypes": "", "psutil": "", "pyyaml": ""}
OPTIONAL = {
    "torch": "torch",
    "transformers": "models",
    "onnx": "onnx",
    "onnxruntime": "peers",
    "panel": "ui",
    "anywidget": "ui",
}
#: With less free memory or disk the larger sample models do not fit.
MEMORY, DISK = 4 << 30, 1 << 30
OK, WARNING, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class Finding:
    """A line of the report.

    ``status`` is ok, note (needed by some features only) or problem; ``fix`` is the suggested fix.
    """

    name: str
    status: str
    found: str
    fix: str = ""


def add_arguments(parser) -> None:
    """Add no arguments of its own."""


def run(arguments) -> int:
    findings = [f for check in CHECKS for f in check()]
    bad = [f for f in findings if f.status == PROBLEM]
    data = {"version": __version__, "ok": not bad, "findings": [asdict(f) for f in findings]}
    emit(arguments, data, lambda: _text(findings, len(bad)))
    return int(bool(bad))


def _python():
    version = platform.python_version()
    good = sys.version_info >= PYTHON
    yield Finding(
        "Python",
        OK if good else PROBLEM,
        version,
        "" if good else f"use Python {'.'.join(map(str, PYTHON))} or newer",
    )
    system = f"{platform.system()} {platform.machine()}"
    known = platform.system() == "Linux"
    yield Finding(
        "system", OK if known else WARNING, system, "" if known else "tested on Linux only"
    )


def _packages():
    for name in REQUIRED:
        yield _package(name, PROBLEM, f"pip install {DISTRIBUTION}")
    for name, extra in OPTIONAL.items():
        yield _package(name, WARNING, f"pip install '{DISTRIBUTION}[{extra}]'")


def _package(name: str, absent: str, install: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, absent, "not installed", install)
    tested = tested_range(name)
    if tested and not within(version, tested):
        return Finding(
            name, WARNING, f"{version}, tested with {tested}", f"pip install '{name}{tested}'"
        )
    return Finding(name, OK, version)


def tested_range(name: str) -> str:
    """Return the versions that our own package requires (``>=2.1,<3``); "" if unknown."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    wanted = name.replace("_", "-").lower()
    for line in lines:
        found = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([<>=!~0-9.,\s*]*)\)?", line)
        if found and found[1].replace("_", "-").lower() == wanted and found[2].strip():
            return ",".join(sorted((p.strip() for p in found[2].split(",")), reverse=True))
    return ""


def within(version: str, tested: str) -> bool:
    """Return whether a version satisfies ``>=a,<b`` (only numbers are compared)."""
    compare = {
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "<=": lambda a, b: a <= b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
    }
    installed = _numbers(version)
    for part in tested.split(","):
        found = re.match(r"(>=|<=|==|!=|<|>)\s*([0-9.]+)", part.strip())
        if found and not compare[found[1]](installed, _numbers(found[2])):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    digits = tuple(int(n) for n in re.split(r"[^0-9.]", version, maxsplit=1)[0].split(".") if n)
    return digits + (0,) * (4 - len(digits))


def _processor():
    if importlib.util.find_spec("llvmlite") is None:
        return
    from core_compiler.hardware.host import detect
    from core_compiler.runtime.memory import available_bytes, show_bytes

    host = detect()
    shown = [
        f
        for f in ("avx512f", "avx2", "fma", "f16c", "avx512bf16", "neon", "sve")
        if f in host.features
    ]
    fma = "fma" in host.features or platform.machine() in ("aarch64", "arm64")
    yield Finding(
        "processor",
        OK if fma else PROBLEM,
        f"{host.model}: {' '.join(shown)}",
        "" if fma else "a processor with fused multiply-add is needed for the contract's bits",
    )
    yield Finding("cores", OK, f"{host.processors} usable, vectors of {8 * host.vector_bytes} bits")
    free = available_bytes()
    yield Finding(
        "memory",
        OK if free >= MEMORY else WARNING,
        f"{show_bytes(free)} free",
        "" if free >= MEMORY else "close programs, or use narrow models (--width 0.25)",
    )


def _cache():
    from core_compiler.runtime.cache_folder import CacheFolder
    from core_compiler.runtime.memory import show_bytes
    from core_compiler.support.errors import UserError

    try:
        folder = CacheFolder()
    except UserError as error:
        yield Finding("cache", PROBLEM, str(error), error.fix)
        return
    writable = _can_write(folder.root)
    fix = "" if writable else "set COMPILER_WORKBENCH_CACHE to a writable folder"
    yield Finding(
        "cache",
        OK if writable else PROBLEM,
        f"{folder.root}, {show_bytes(folder.size())} of {show_bytes(folder.limit)}"
        + ("" if writable else ", not writable"),
        fix,
    )
    if writable:
        free = shutil.disk_usage(
            folder.root if folder.root.exists() else _existing(folder.root)
        ).free
        yield Finding(
            "disk",
            OK if free >= DISK else WARNING,
            f"{show_bytes(free)} free on the disk of the cache",
            "" if free >= DISK else "free disk space, or lower COMPILER_WORKBENCH_CACHE_LIMIT",
        )


def _can_write(root: Path) -> bool:
    """Return whether files can be created in ``root``, which may be created too.

    Leaves nothing behind.
    """
    folder = _existing(root)
    probe = folder / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError:
        return False
    return folder.is_dir()


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _programs():
    gxx = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    yield Finding(
        "C++ compiler",
        OK if gxx else WARNING,
        gxx or "none",
        "" if gxx else "only for --against torch.compile: install g++",
    )
    browser = next(
        (p for p in ("chromium", "chromium-browser", "google-chrome") if shutil.which(p)), None
    )
    browsers = Path(
        os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright"
    )
    playwright_browser = (
        next(iter(sorted(browsers.glob("chromium*"))), None) if browsers.is_dir() else None
    )
    have = (
        shutil.which(browser)
        if browser
        else str(playwright_browser)
        if playwright_browser
        else None
    )
    yield Finding(
        "chromium",
        OK if have else WARNING,
        have or "none",
        ""
        if have
        else "only for the page's own tests: install chromium, or `playwright install chromium`",
    )
    pygraphviz = importlib.util.find_spec("pygraphviz") is not None
    dot = "pygraphviz" if pygraphviz else shutil.which("dot")
    yield Finding(
        "graphviz",
        OK if dot else WARNING,
        dot or "none",
        "" if dot else "only to draw small graphs outside the page: pip install pygraphviz",
    )


def _targets():
    if importlib.util.find_spec("numba") is None:
        return
    from core_compiler import targets

    if not targets.names():
        yield Finding("targets", PROBLEM, "none installed", "install the package: pip install -e .")
    for name in targets.names():
        missing = targets.target(name).available()
        yield Finding(
            f"target {name}",
            OK if missing is None else WARNING,
            "can execute here" if missing is None else "cannot execute here",
            missing or "",
        )


def _cuda():
    from core_compiler.codegen.cuda import toolchain
    from core_compiler.runtime import cuda_driver

    missing = toolchain.missing()
    versions = toolchain.versions()
    yield Finding(
        "CUDA compiler",
        WARNING if missing else OK,
        missing or f"numba-cuda {versions['numba-cuda']}, NVVM {versions['nvidia-nvvm']}",
        f"only for -t cuda: pip install '{DISTRIBUTION}[cuda]'" if missing else "",
    )
    found = cuda_driver.gpu()
    yield Finding(
        "GPU",
        WARNING if found is None else OK,
        cuda_driver.missing() or "none"
        if found is None
        else f"{found.name}, {found.architecture}, driver for CUDA {found.cuda}",
        "only to execute cuda kernels: without a GPU they are compiled and can be inspected"
        if found is None
        else "",
    )


CHECKS = (_python, _packages, _processor, _cache, _targets, _cuda, _programs)


def _text(findings, bad: int) -> str:
    paint = painter()
    colour = {OK: "green", WARNING: "yellow", PROBLEM: "red"}
    rows = [(f.status, f.name, f.found, f.fix) for f in findings]
    lines = table(("", "", "", ""), rows).splitlines()[1:]
    shown = [
        paint(colour[f.status], line[:7]) + line[7:]
        for f, line in zip(findings, lines, strict=True)
    ]
    end = (
        "everything required is installed" if not bad else f"{bad} problem{'s' if bad > 1 else ''}"
    )
    return "\n".join([*shown, end])
