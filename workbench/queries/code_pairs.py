"""The texts of a kernel of A next to those of the kernels of B that compute the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from core_compiler.ir.line_diff import ADDED, CHANGED, REMOVED, SAME, AlignedLines
from core_compiler.record.reader import Kernel
from workbench.queries import kernel_texts
from workbench.queries.pairs import pairs
from workbench.queries.run import Run

#: Kernels of B shown next to one of A, the most expensive first.
MAX_PARTNERS = 8


#: Texts with more lines than this are not compared: each would take seconds.
MAX_LINES = 20_000


#: File extensions of the texts of a kernel, by their titles.
_ENDINGS = {"Generated source": "py", "LLVM IR": "ll", "PTX": "ptx", "SASS": "sass"}


@dataclass(frozen=True)
class Partner:
    """A kernel of B whose launches compute the same as those of a kernel of A.

    It has the number of launches, their time in microseconds (None: unknown), and whether the
    match is a guess from flops, bytes and order.
    """

    kernel: Kernel
    launches: int
    us: float | None
    guessed: bool


@dataclass(frozen=True)
class Part:
    """A text of both kernels, with aligned lines."""

    title: str
    language: str
    partner: int
    texts: tuple[str, str]
    names: tuple[str, str]
    rows: AlignedLines
    same: bool


def partners_of(run: Run, other: Run, kernel: Kernel) -> list[Partner]:
    """Return the kernels of B that compute the same as ``kernel``, the most expensive first."""
    launches = set(kernel.launches)
    known = {each.name: each for each in other.kernels()}
    found: dict[str, list[tuple[float | None, bool]]] = {}
    for pair in pairs(run, other):
        if not any(each.op in launches for each in pair.first):
            continue
        for each in pair.second:
            if each.work.kernel in known:
                spent = each.work.median_us
                us = each.work.predicted_us if spent is None else spent
                found.setdefault(each.work.kernel, []).append((us, pair.by_work))
    made = []
    for name, some in found.items():
        times = [us for us, _ in some if us is not None]
        guessed = all(by_work for _, by_work in some)
        made.append(Partner(known[name], len(some), sum(times) if times else None, guessed))
    return sorted(made, key=lambda each: -(each.us or 0.0))[:MAX_PARTNERS]


def parts_of(
    run: Run, other: Run, kernel: Kernel, partners: Sequence[Partner]
) -> tuple[list[Part], list[str]]:
    """Return the texts that both kernels have, and the titles of those too long to compare."""
    key = (
        "code beside",
        kernel.id,
        run.version.kernels,
        run.version.stages,
        str(other.path),
        other.identity,
        tuple(each.kernel.id for each in partners),
    )
    return run.cached(key, lambda: _align_texts(run, other, kernel, partners))


def _align_texts(
    run: Run, other: Run, kernel: Kernel, partners: Sequence[Partner]
) -> tuple[list[Part], list[str]]:
    texts_a = kernel_texts.texts_of(run, kernel)
    keys = _keys(run, kernel, [text for _, _, text in texts_a])
    found, left_out = [], []
    for number, partner in enumerate(partners):
        texts_b = kernel_texts.texts_of(other, partner.kernel)
        for at, ((title, language, left), (title_b, _, right)) in enumerate(
            zip(texts_a, texts_b, strict=True)
        ):
            if not left or not right:
                continue
            line_count = max(left.count("\n"), right.count("\n"))
            shown = title if title == title_b else f"{title} | {title_b}"
            if line_count > MAX_LINES:
                left_out.append(f"{shown} of {partner.kernel.name}: {line_count:,} lines")
                continue
            names = kernel.name, partner.kernel.name
            rows, same = _aligned(left, right, names, keys[at])
            files = _file("a", names[0], title), _file("b", names[1], title_b)
            found.append(Part(shown, language, number, (left, right), files, rows, same))
    return found, left_out


def _file(letter: str, kernel: str, title: str) -> str:
    """Return the file name that a text is saved under."""
    return f"{letter}_{kernel}.{_ENDINGS.get(title, 's')}"


def _keys(run: Run, kernel: Kernel, texts: list[str]) -> list[dict[int, int]]:
    """Return the ops by line, for each text."""
    found: list[dict[int, int]] = [{} for _ in texts]
    for group in kernel_texts.groups_of(run, kernel, texts, [True] * len(texts)):
        if "op" in group:
            for ops, lines in zip(found, group["lines"], strict=True):
                for line in lines:
                    ops.setdefault(line, group["op"])
    return found


class _TextLines(AlignedLines):
    """Lines of two texts that are already aligned: all rows are known."""

    def __init__(self, rows: list[dict[str, Any]]):
        self._rows = list(rows)


def text_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _aligned(
    left: str, right: str, names: tuple[str, str], ops: Mapping[int, int]
) -> tuple[AlignedLines, bool]:
    """Return the aligned lines of both texts, and whether they differ only in the kernels' names.

    Lines of A carry the ops that they compute.
    """
    a, b = text_lines(left), text_lines(right)
    bare = [
        [re.sub(rf"\b{re.escape(name)}\b", "\0", line) for line in lines]
        for lines, name in zip((a, b), names, strict=True)
    ]
    rows: list[dict[str, Any]] = []

    def add(i: int | None, j: int | None) -> None:
        one, two = None if i is None else a[i], None if j is None else b[j]
        kind = REMOVED if two is None else ADDED if one is None else SAME
        rows.append(
            {
                "kind": kind if kind != SAME or one == two else CHANGED,
                "left": one,
                "right": two,
                "left_key": None if i is None else ops.get(i + 1),
                "right_key": None,
                "how": "",
            }
        )

    for _, i, i2, j, j2 in SequenceMatcher(None, bare[0], bare[1], autojunk=False).get_opcodes():
        both = min(i2 - i, j2 - j)
        for step in range(both):
            add(i + step, j + step)
        for n in range(i + both, i2):
            add(n, None)
        for n in range(j + both, j2):
            add(None, n)
    return _TextLines(rows), bare[0] == bare[1]
