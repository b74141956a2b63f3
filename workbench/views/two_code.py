"""The code of a kernel of A beside that of the kernel of B which computes the same: each text with
its lines side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_compiler.ir.unified import patch
from core_compiler.record.reader import Kernel
from workbench.queries.code_pairs import Part, Partner, partners_of, parts_of, text_lines
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import Empty, code, diff, missing


def key(run: Run, sight: Sight, other: Run) -> tuple:
    there = other.version
    return *code.key(run, sight), there.kernels, there.timings, there.stages, other.status


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``two``: ``title`` and ``kernel`` of A, ``names`` of the recordings, the ``partners`` (name,
    id, launches, us, ``guessed``) and of each the ``parts``: a text as the diff view has it, A on
    the left, with its ``text`` (title), ``partner`` and what is ``said`` where nothing differs;
    ``left_out``: texts that are too long to compare."""
    kernel, partners = _matched(run, sight, other)
    parts, left_out = parts_of(run, other, kernel, partners)
    if not parts:
        raise Empty(
            f"The recordings keep no text of {kernel.name} and of {partners[0].kernel.name} both"
            f"{f' that can be compared ({left_out[0]})' if left_out else ''}.",
            "Show A alone.",
        )
    return {
        "two": {
            "title": kernel.name, "kernel": kernel.id, "names": [run.path.name, other.path.name],
            "partners": [
                {"name": each.kernel.name, "id": each.kernel.id, "launches": each.launches,
                 "us": each.us, "guessed": each.guessed} for each in partners
            ],
            "parts": [_sent(run, other, kernel, partners, part) for part in parts],
            "left_out": left_out,
        }
    }  # fmt: skip


def _sent(
    run: Run, other: Run, kernel: Kernel, partners: Sequence[Partner], part: Part
) -> dict[str, Any]:
    there = partners[part.partner].kernel
    left, right = part.texts
    said = ""
    if left == right:
        said = "the same text"
    elif part.same:
        said = "the same text but for the kernel's name"
    return {
        "text": part.title, "partner": part.partner, "said": said, "language": part.language,
        "left": {"title": f"A  {kernel.name}  ·  {run.path.name}"},
        "right": {"title": f"B  {there.name}  ·  {other.path.name}"},
        **diff.sent(part.rows),
    }  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return code.selection(run, sight)


def answer(run: Run, sight: Sight, request: Mapping[str, Any], other: Run) -> Any:
    """What the view asks of one of its ``part``s: further ``lines``, where an op stands (``find``),
    or a whole ``text`` to save (``before``: of A, ``after``: of B, ``patch``)."""
    kernel, partners = _matched(run, sight, other)
    part = parts_of(run, other, kernel, partners)[0][int(request.get("part", 0))]
    if request["kind"] == "text":
        return _text(part, str(request["what"]))
    sides = diff.Sides(part.rows, part.names, (lambda: part.texts[0], lambda: part.texts[1]))
    return diff.answered(run, sides, dict(request))


def _text(part: Part, what: str) -> dict[str, Any]:
    if what == "patch":
        lines = list(patch(part.rows, *part.names))
        return {"file": f"{part.names[1]}.diff", "lines": lines, "next": None}
    side = ("before", "after").index(what)
    return {"file": part.names[side], "lines": text_lines(part.texts[side]), "next": None}


# -- which kernels --------------------------------------------------------------------------------


def _matched(run: Run, sight: Sight, other: Run) -> tuple[Kernel, list[Partner]]:
    """The shown kernel of A, and those of B that compute the same; Empty where none does."""
    for each, letter in ((run, "A"), (other, "B")):
        if not each.kernels():
            raise missing.of_two(each, letter, "kernels")
    number = code.chosen(run, sight)
    kernel = next(k for k in run.kernels() if k.id == number)
    if not kernel.launches:
        raise Empty(
            f"No launch of A runs {kernel.name}, so no kernel of B is known to do the same.",
            "Select a kernel that is launched, or show A alone.",
        )
    found = partners_of(run, other, kernel)
    if not found:
        raise Empty(
            f"B ({other.path.name}) has no kernel that computes what {kernel.name} of A does.",
            "Select another kernel, or show A alone.",
        )
    return kernel, found


# -- their texts ----------------------------------------------------------------------------------
