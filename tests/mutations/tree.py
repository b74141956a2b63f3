"""Copies of the source tree: a base with bytecode, and overlays in which one file is another.

An overlay is made of links into the base but for the file and the folders above it, so that it
costs a few milliseconds; the digests that the caches are keyed by read through the links, and so
differ exactly where the changed file is one of theirs.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
from collections.abc import Container, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PACKAGES = ("core_compiler", "workbench", "sample_models")
#: Of the tests, what runs in a copy: the harness, and the suites that models are made of.
_HARNESS = (
    "mutations",
    "conformance",
    *(f"results/{suite}.json" for suite in ("opinfo", "opinfo_gradients", "onnx_nodes")),
)
#: The files that the corpus is made by.
CORPUS = (
    *(f"mutations/{name}.py" for name in (
        "corpus", "torch_models", "near_models", "opinfo_suite", "onnx_models",
        "onnx_suite", "jax_suite", "stablehlo_models", "opinfo_training", "training_tasks")),
    "mutations/jax_suite.txt",
    "conformance/opinfo.py", "conformance/opinfo_gradients.py", *_HARNESS[2:],
)  # fmt: skip


def digest(root: Path = ROOT, files: Sequence[str] = ()) -> str:
    """SHA-256 over the paths and contents of the tree's Python files, or of ``files``."""
    found = hashlib.sha256()
    every = (path for package in _PACKAGES for path in sorted((root / package).rglob("*.py")))
    for path in [root / file for file in files] or every:
        found.update(f"{path.relative_to(root).as_posix()}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def corpus_digest(root: Path = ROOT) -> str:
    """SHA-256 over the files that make the corpus."""
    found = hashlib.sha256()
    edges = sorted((root / "tests/mutations/edges").glob("*.py"))
    for path in (*(root / "tests" / name for name in CORPUS), *edges):
        found.update(path.read_bytes())
    return found.hexdigest()


def copy(folder: Path, root: Path = ROOT) -> Path:
    """The tree with its bytecode, in ``folder``."""
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for package in _PACKAGES:
            shutil.copytree(
                root / package,
                folder / package,
                ignore=shutil.ignore_patterns("__pycache__", "results"),
            )
        compileall.compile_dir(folder, quiet=2)
        (folder / ".complete").touch()
    shutil.rmtree(folder / "tests", ignore_errors=True)
    (folder / "tests" / "results").mkdir(parents=True)
    (folder / "tests" / "__init__.py").touch()
    for part in _HARNESS:
        copied = shutil.copytree if (root / "tests" / part).is_dir() else shutil.copyfile
        copied(root / "tests" / part, folder / "tests" / part)
    return folder


def overlay(folder: Path, base: Path, file: str, text: str) -> Path:
    """``base`` in ``folder``, where ``file`` has the content ``text``."""
    shutil.rmtree(folder, ignore_errors=True)
    _links(folder, base, Path(file).parts)
    (folder / file).write_text(text)
    return folder


def _links(folder: Path, base: Path, parts: tuple[str, ...]) -> None:
    folder.mkdir(parents=True)
    for entry in os.scandir(base):
        if entry.name == parts[0]:
            if len(parts) > 1:
                _links(folder / entry.name, base / entry.name, parts[1:])
        else:
            os.symlink(entry.path, folder / entry.name)


def cache(folder: Path, clean: Path) -> Path:
    """A cache folder that holds the entries of ``clean`` and no others; what is written stays in
    it.  One that an earlier mutant wrote to becomes so again: thousands of links that are still
    right are not made anew.

    Shelves are folders of its own, entries are links: nothing is ever written below a link, but
    into ``reference``, whose folders are those of one state of the sources each: Numba writes its
    index there anew, so that they are copied.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # What checks have found right is found again: a mutant's checks remember nothing.
    kinds = {
        kind.name: kind.path
        for kind in os.scandir(clean)
        if kind.is_dir() and not kind.name.startswith(".") and kind.name != "tried"
    }
    _remove_others(folder, kinds)
    for kind, path in kinds.items():
        made = folder / kind
        made.mkdir(exist_ok=True)
        shelves = {shelf.name: shelf.path for shelf in os.scandir(path)}
        _remove_others(made, shelves)
        for shelf, at in shelves.items():
            target = made / shelf
            target.mkdir(exist_ok=True)
            entries = {entry.name: entry.path for entry in os.scandir(at)}
            kept = _remove_others(target, entries, links=True)
            for name, entry in entries.items():
                if name in kept:
                    continue
                if kind == "reference" and name.endswith(".nbi"):
                    shutil.copyfile(entry, target / name)
                else:
                    os.symlink(entry, target / name)
    return folder


def _remove_others(folder: Path, names: Container[str], links: bool = False) -> set[str]:
    """Remove what has none of these names (``links``: what is no link either); what is left."""
    kept = set()
    for entry in os.scandir(folder):
        if entry.name in names and (not links or entry.is_symlink()):
            kept.add(entry.name)
        elif entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    return kept
