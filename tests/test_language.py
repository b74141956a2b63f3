"""The language of the sources: docstrings that define or instruct, and counts that only fall."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core_compiler", "workbench", "widgets", "sample_models")
#: First words that make a docstring a question or a fragment instead of an instruction ("Return the
#: live intervals of every buffer.") or a definition ("The memory plan of a program.").
FRAGMENTS = {
    "Who",
    "What",
    "Whether",
    "How",
    "Where",
    "Of",
    "Which",
    "When",
    "One",
    "Those",
    "That",
}
#: The number of `` comments; it may only fall.
MOST_SKIPS = 137


def _sources(*packages: str) -> Iterator[Path]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield path


def test_docstrings_begin_with_a_verb_or_a_noun():
    found = []
    for path in _sources(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "").split(maxsplit=1)
                if words and words[0].strip("`:,.") in FRAGMENTS:
                    name = getattr(node, "name", "module")
                    found.append(f"{path.relative_to(ROOT)}: {name}: {words[0]} ...")
    assert not found, "\n".join(found)


def test_fewer_lines_are_left_out_of_formatting():
    paths = [*_sources(*PACKAGES, "tests", "benchmarks"), ROOT / "hatch_build.py"]
    count = sum(path.read_text(encoding="utf-8").count("# fmt: " + "skip") for path in paths)
    assert count <= MOST_SKIPS, f"{count} of at most {MOST_SKIPS}"
