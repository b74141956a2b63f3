"""The code of a kernel: source, LLVM IR and assembly, or PTX and SASS, with matching lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_compiler.ir import Op
from core_compiler.ir.unified import patch
from core_compiler.record.reader import Kernel
from workbench.queries.code_pairs import Part, Partner, partners_of, parts_of, text_lines
from workbench.queries.kernel_table import table
from workbench.queries.kernel_texts import groups_of, hot_line, texts_of
from workbench.queries.links import launches, linked
from workbench.queries.model_lines import ModelLines, traced
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState
from workbench.views import Empty, diff, missing

#: Ops of kernels that contain others.
_LOOPS = ("kernel.for", "kernel.if")


def key(run: Run, state: ViewState) -> tuple:
    return run.version.kernels, run.version.timings, chosen(run, state), run.status


def chosen(run: Run, state: ViewState) -> int | None:
    """Return the selected kernel, else the most expensive one."""
    found = linked(run, state).kernel
    known = {k.id for k in run.kernels()}
    if found in known:
        return found
    rows = table(run)
    return rows[0]["id"] if rows else None


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the code view (widgets/README.md)."""
    number = chosen(run, state)
    kernel = next((k for k in run.kernels() if k.id == number), None)
    if kernel is None:
        raise missing.made_by(run, "generate_code", "No kernels are generated", "kernels")
    texts = texts_of(run, kernel)
    panes = [{"title": t, "language": lang, "text": text} for t, lang, text in texts if text]
    if not panes:
        raise Empty(f"The recording does not contain the source of kernel {kernel.name}.")
    has_text = [bool(text) for _, _, text in texts]
    return {
        "title": kernel.name,
        "kernel": kernel.id,
        "panes": panes,
        "groups": groups_of(run, kernel, [text for _, _, text in texts], has_text),
        "hot": hot_line(texts[0][2]) if has_text[0] else None,
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return ``kernel``, and ``ops``: those of its own ops that compute the selected op."""
    run = runs[0]
    number = chosen(run, state)
    if number is None or state.op is None:
        return {} if number is None else {"kernel": number}
    kernel = next(k for k in run.kernels() if k.id == number)
    key = ("kernel ops", number, state.op, run.version.compiled)
    op = state.op
    return {"kernel": number, "ops": run.cached(key, lambda: _ops_for(run, kernel, op))}


def _ops_for(run: Run, kernel: Kernel, op: int) -> list[int]:
    """Return the ops of a kernel's source lines that compute ``op`` of the model's program.

    Their loops, and ops that only compute addresses, are included only if there are no others.
    """
    mapped = list(dict.fromkeys(k for _, k in kernel.line_map))
    if op in mapped:
        return [op]
    found = traced(run)
    nodes = found.nodes_of(op)
    if not nodes:
        return []
    node = _counterpart(run, kernel, found, nodes[0])
    candidates = [k for k in mapped if found.nodes_of(k)[:1] == (node,)]
    candidates = candidates or [k for k in mapped if node in found.nodes_of(k)]
    made = {k: run.recording.op(k) for k in candidates}
    inner = [k for k, each in made.items() if each.kind not in _LOOPS]
    return [k for k in inner if _computes(made[k])] or inner or candidates


def _computes(op: Op) -> bool:
    """Return whether an op of a kernel does more than compute addresses."""
    return not op.results or any(str(value.type) != "index" for value in op.results)


def _counterpart(run: Run, kernel: Kernel, found: ModelLines, node: int) -> int:
    """Return the node at the position of ``node`` in the launch that the kernel's lines describe.

    That is the first of the launches that share the kernel.
    """
    made = launches(run)
    launch = next((n for n in kernel.launches if node in found.of_launch.get(n, ())), None)
    if launch is None or launch not in made or kernel.launches[0] not in made:
        return node
    own_ops, first_ops = (made[n].regions[0].ops for n in (launch, kernel.launches[0]))
    for own_op, first_op in zip(own_ops, first_ops, strict=False):
        counterparts = found.nodes_of(run.op_id(first_op))
        if counterparts and node in found.nodes_of(run.op_id(own_op))[:1]:
            return counterparts[0]
    return node


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return ``two``: A's kernel and its counterparts in B, with their texts aligned.

    It has ``title`` and ``kernel`` of A, ``names`` of the recordings, the ``partners`` (name, id,
    launches, us, ``guessed``) and for each the ``parts``: a text as in the diff view, A on the
    left, with its ``text`` (title), ``partner`` and the message ``said`` if nothing differs;
    ``left_out``: texts that are too long to compare.
    """
    kernel, partners = _matched(run, state, other)
    parts, left_out = parts_of(run, other, kernel, partners)
    if not parts:
        raise Empty(
            f"The recordings have no text of both {kernel.name} and {partners[0].kernel.name}"
            f"{f' that can be compared ({left_out[0]})' if left_out else ''}.",
            "Show A alone.",
        )
    return {
        "two": {
            "title": kernel.name,
            "kernel": kernel.id,
            "names": [run.path.name, other.path.name],
            "partners": [
                {
                    "name": each.kernel.name,
                    "id": each.kernel.id,
                    "launches": each.launches,
                    "us": each.us,
                    "guessed": each.guessed,
                }
                for each in partners
            ],
            "parts": [_part_data(run, other, kernel, partners, part) for part in parts],
            "left_out": left_out,
        }
    }


def _part_data(
    run: Run, other: Run, kernel: Kernel, partners: Sequence[Partner], part: Part
) -> dict[str, Any]:
    other_kernel = partners[part.partner].kernel
    left, right = part.texts
    note = ""
    if left == right:
        note = "the same text"
    elif part.same:
        note = "the same text except for the kernel's name"
    return {
        "text": part.title,
        "partner": part.partner,
        "said": note,
        "language": part.language,
        "left": {"title": f"A  {kernel.name}  ·  {run.path.name}"},
        "right": {"title": f"B  {other_kernel.name}  ·  {other.path.name}"},
        **diff.initial_lines(part.rows),
    }


def answer(runs: Runs, state: ViewState, request: Mapping[str, Any]) -> Any:
    """Return the response to a request about one of its ``part``s.

    Requests are for further ``lines``, the position of an op (``find``), or a whole ``text`` to
    save (``before``: of A, ``after``: of B, ``patch``).
    """
    run, other = shown(runs)
    if other is None:
        raise ValueError("the code view sends no parts without a second recording")
    kernel, partners = _matched(run, state, other)
    part = parts_of(run, other, kernel, partners)[0][int(request.get("part", 0))]
    if request["kind"] == "text":
        return _text(part, str(request["what"]))
    sides = diff.Sides(part.rows, part.names, (lambda: part.texts[0], lambda: part.texts[1]))
    return diff.answer_request(run, sides, dict(request))


def _text(part: Part, what: str) -> dict[str, Any]:
    if what == "patch":
        lines = list(patch(part.rows, *part.names))
        return {"file": f"{part.names[1]}.diff", "lines": lines, "next": None}
    side = ("before", "after").index(what)
    return {"file": part.names[side], "lines": text_lines(part.texts[side]), "next": None}


def _matched(run: Run, state: ViewState, other: Run) -> tuple[Kernel, list[Partner]]:
    """Return the shown kernel of A, and those of B that compute the same; Empty if none."""
    missing.need_both(run, other, lambda each: each.kernels(), "kernels")
    number = chosen(run, state)
    kernel = next(k for k in run.kernels() if k.id == number)
    if not kernel.launches:
        raise Empty(
            f"{kernel.name} is not launched in A, so its counterpart in B is unknown.",
            "Select a kernel that is launched, or show A alone.",
        )
    found = partners_of(run, other, kernel)
    if not found:
        raise Empty(
            f"No kernel of B ({other.path.name}) computes the same as {kernel.name} of A.",
            "Select another kernel, or show A alone.",
        )
    return kernel, found
