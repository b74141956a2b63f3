"""The code of a kernel: generated source beside LLVM IR and assembly, or PTX and SASS, and which
lines of these belong together."""

from __future__ import annotations

import re
from typing import Any

from core_compiler.ir import Op
from core_compiler.record.reader import Kernel
from workbench.queries.kernel_table import table
from workbench.queries.links import launches, linked
from workbench.queries.model_lines import ModelLines, traced
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import Empty, missing

#: What a kernel's texts are called where its facts do not say, and how they are highlighted.
_TITLES = {"source": "Generated source", "intermediate": "LLVM IR", "assembly": "Assembly"}
_LANGUAGES = {"Generated source": "python", "LLVM IR": "llvm"}
#: Longer texts are cut: a person reads a kernel, not megabytes.
MAX_CHARACTERS = 1_000_000
#: Nodes of the framework named beside a line.
MAX_NODES = 3

#: Ops of kernels that hold others.
_LOOPS = ("kernel.for", "kernel.if")

#: A call of a kernel's inner function that reduces a tile, and as how many loops it counts: what it
#: has of its own.
_TILE = re.compile(r"\binvoke_\d+\(tile_")
_TILE_DEPTH = 3

_DEBUG_USE = re.compile(r"!dbg !(\d+)")
_DEBUG_PLACE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)", re.MULTILINE)
#: nvdisasm writes the instruction far to the right of its address.
_SASS = re.compile(r"^\s+(/\*[0-9a-f]+\*/)\s+", re.MULTILINE)
_ASSEMBLY_PLACE = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)")


def key(run: Run, sight: Sight) -> tuple:
    return run.version.kernels, run.version.timings, chosen(run, sight), run.status


def chosen(run: Run, sight: Sight) -> int | None:
    """The selected kernel, else the most expensive one."""
    found = linked(run, sight).kernel
    known = {k.id for k in run.kernels()}
    if found in known:
        return found
    rows = table(run)
    return rows[0]["id"] if rows else None


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """The ``data`` of the code view (widgets/README.md)."""
    number = chosen(run, sight)
    kernel = next((k for k in run.kernels() if k.id == number), None)
    if kernel is None:
        raise missing.made_by(run, "generate_code", "No kernels are generated", "kernels")
    texts = texts_of(run, kernel)
    panes = [{"title": t, "language": lang, "text": text} for t, lang, text in texts if text]
    if not panes:
        raise Empty(f"The recording keeps no source of kernel {kernel.name}.")
    kept = [bool(text) for _, _, text in texts]
    return {
        "title": kernel.name,
        "kernel": kernel.id,
        "panes": panes,
        "groups": groups_of(run, kernel, [text for _, _, text in texts], kept),
        "hot": hot_line(texts[0][2]) if kept[0] else None,
    }


def hot_line(source: str) -> int | None:
    """The line (from 1) of a kernel's generated source where most of its time goes, by its loops: a
    call of a tile, which is a reduction, in the deepest loop that has one, else the first line in
    the deepest loop.  None where there is no loop."""
    best, found = 0, None
    loops: list[int] = []  # the indents of the loops around
    for number, line in enumerate(source.split("\n"), 1):
        text = line.lstrip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(text)
        while loops and indent <= loops[-1]:
            loops.pop()
        weight = len(loops) + (_TILE_DEPTH if loops and _TILE.search(text) else 0)
        if text.startswith(("for ", "while ")):
            loops.append(indent)
        elif weight > best:
            best, found = weight, number
    return found


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    """``kernel``, and ``ops``: those of its own ops that compute the selected op."""
    number = chosen(run, sight)
    if number is None or sight.op is None:
        return {} if number is None else {"kernel": number}
    kernel = next(k for k in run.kernels() if k.id == number)
    key = ("kernel ops", number, sight.op, run.version.compiled)
    op = sight.op
    return {"kernel": number, "ops": run.kept(key, lambda: _ops_for(run, kernel, op))}


def _ops_for(run: Run, kernel: Kernel, op: int) -> list[int]:
    """The ops of a kernel's source lines that compute ``op`` of the model's program; loops around
    them, and what only says where something lies, where there is nothing else."""
    mapped = list(dict.fromkeys(k for _, k in kernel.line_map))
    if op in mapped:
        return [op]
    found = traced(run)
    nodes = found.nodes_of(op)
    if not nodes:
        return []
    node = _twin(run, kernel, found, nodes[0])
    mine = [k for k in mapped if found.nodes_of(k)[:1] == (node,)]
    mine = mine or [k for k in mapped if node in found.nodes_of(k)]
    made = {k: run.recording.op(k) for k in mine}
    inner = [k for k, each in made.items() if each.kind not in _LOOPS]
    return [k for k in inner if _computes(made[k])] or inner or mine


def _computes(op: Op) -> bool:
    """Whether an op of a kernel does more than say where something lies."""
    return not op.results or any(str(value.type) != "index" for value in op.results)


def _twin(run: Run, kernel: Kernel, found: ModelLines, node: int) -> int:
    """The node that stands where ``node`` does in the launch that the kernel's lines speak of: the
    first of those that share it."""
    made = launches(run)
    here = next((n for n in kernel.launches if node in found.of_launch.get(n, ())), None)
    if here is None or here not in made or kernel.launches[0] not in made:
        return node
    mine, first = (made[n].regions[0].ops for n in (here, kernel.launches[0]))
    for ours, theirs in zip(mine, first, strict=False):
        twins = found.nodes_of(run.op_id(theirs))
        if twins and node in found.nodes_of(run.op_id(ours))[:1]:
            return twins[0]
    return node


def texts_of(run: Run, kernel: Kernel) -> list[tuple[str, str, str]]:
    """Title, language and text of each text that a kernel may have; "" where it has none."""
    titles = [(what, str(kernel.facts.get(what, title))) for what, title in _TITLES.items()]
    return [(t, _LANGUAGES.get(t, "asm"), _text(run, kernel, what)) for what, t in titles]


def _text(run: Run, kernel: Kernel, what: str) -> str:
    text = run.recording.kernel_text(kernel.id, what)
    if kernel.facts.get(what) == "SASS":
        text = _SASS.sub(r"  \1  ", text)
    if len(text) > MAX_CHARACTERS:
        return text[:MAX_CHARACTERS] + f"\n... {len(text) - MAX_CHARACTERS} more characters\n"
    return text


def groups_of(
    run: Run, kernel: Kernel, texts: list[str], kept: list[bool]
) -> list[dict[str, Any]]:  # fmt: skip
    """Lines by source line, from the recording's maps, else from LLVM's debug locations and the
    assembly's ``.loc`` directives; ops from the line map, with what they are labelled by."""
    source, intermediate, assembly = texts
    ops: dict[int, int] = {}
    for line, op in kernel.line_map:
        ops.setdefault(line, op)
    lower: dict[int, tuple[list[int], list[int]]] = {}
    for line, at in kernel.intermediate_map or _llvm_lines(intermediate):
        lower.setdefault(at, ([], []))[0].append(line)
    pairs = kernel.assembly_map or _assembly_lines(assembly)
    for line, at in pairs:
        lower.setdefault(at, ([], []))[1].append(line)
    groups = []
    count = source.count("\n") + 1
    for line in sorted({*ops, *lower}):
        if not 0 < line <= count:
            continue
        lines = [[line], *lower.get(line, ([], []))]
        shown = [rows for rows, there in zip(lines, kept, strict=True) if there]
        group: dict[str, Any] = {"lines": shown}
        if line in ops:
            group["op"] = ops[line]
            group["label"] = _label(run, ops[line])
        groups.append(group)
    return groups


def _label(run: Run, number: int) -> str:
    """A kernel's op, the nodes of the framework that it computes, and their line of the model."""
    op = run.index(run.version.stages - 1).ops.get(number)
    if op is None:
        return ""
    nodes = op.origin.nodes() if op.origin is not None else ()
    computes = ", ".join(n.name for n in nodes[:MAX_NODES]) + (", …" if nodes[MAX_NODES:] else "")
    file, line = run.kept_place(op)
    place = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" if file else ""
    return "  ".join(part for part in (op.kind.rpartition(".")[2], computes, place) if part)


def _llvm_lines(text: str) -> list[tuple[int, int]]:
    places = {number: int(line) for number, line in _DEBUG_PLACE.findall(text)}
    if not places:
        return []
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        use = _DEBUG_USE.search(line)
        if use and use[1] in places:
            found.append((number, places[use[1]]))
    return found


def _assembly_lines(text: str) -> list[tuple[int, int]]:
    found, at = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        place = _ASSEMBLY_PLACE.match(line)
        if place:
            at = int(place[1])
        elif at and line.startswith(("\t", " ")) and not line.lstrip().startswith("."):
            found.append((number, at))
    return found
