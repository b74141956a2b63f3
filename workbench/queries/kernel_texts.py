"""The texts of a kernel (source, LLVM IR, assembly; or PTX, SASS) with matching lines."""

from __future__ import annotations

import re
from typing import Any

from core_compiler.record.reader import Kernel
from workbench.queries.run import Run

#: Titles and syntax of a kernel's texts if its facts do not state them.
_TITLES = {"source": "Generated source", "intermediate": "LLVM IR", "assembly": "Assembly"}


_LANGUAGES = {"Generated source": "python", "LLVM IR": "llvm"}


#: Longer texts are truncated: users read a kernel, not megabytes.
MAX_CHARACTERS = 1_000_000


#: The number of framework nodes named next to a line.
MAX_NODES = 3


#: A call of a kernel's inner function that reduces a tile, and the number of loops it counts as:
#: those that the function itself contains.
_TILE = re.compile(r"\binvoke_\d+\(tile_")


_TILE_DEPTH = 3


_DEBUG_USE = re.compile(r"!dbg !(\d+)")


_DEBUG_LOCATION = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)", re.MULTILINE)


#: nvdisasm writes the instruction far to the right of its address.
_SASS = re.compile(r"^\s+(/\*[0-9a-f]+\*/)\s+", re.MULTILINE)


_ASSEMBLY_LOCATION = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)")


def hot_line(source: str) -> int | None:
    """Return the line (from 1) of a kernel's generated source that takes most of the time.

    It is judged by its loops: a call of a tile, which is a reduction, in the deepest loop that has
    one, else the first line in the deepest loop. None if there is no loop.
    """
    best, found = 0, None
    loops: list[int] = []  # the indents of the enclosing loops
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


def texts_of(run: Run, kernel: Kernel) -> list[tuple[str, str, str]]:
    """Return title, language and text of each text that a kernel may have; "" if it lacks it."""
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
    run: Run, kernel: Kernel, texts: list[str], has_text: list[bool]
) -> list[dict[str, Any]]:
    """Return the lines grouped by source line, with their ops and labels.

    They come from the recording's maps, else from LLVM's debug locations and the assembly's
    ``.loc`` directives; the ops come from the line map.
    """
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
        shown = [rows for rows, is_shown in zip(lines, has_text, strict=True) if is_shown]
        group: dict[str, Any] = {"lines": shown}
        if line in ops:
            group["op"] = ops[line]
            group["label"] = _label(run, ops[line])
        groups.append(group)
    return groups


def _label(run: Run, number: int) -> str:
    """Return a kernel's op, the framework nodes that it computes, and their line of the model."""
    op = run.index(run.version.stages - 1).ops.get(number)
    if op is None:
        return ""
    nodes = op.origin.nodes() if op.origin is not None else ()
    computes = ", ".join(n.name for n in nodes[:MAX_NODES]) + (", …" if nodes[MAX_NODES:] else "")
    file, line = run.source_location(op)
    place = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" if file else ""
    return "  ".join(part for part in (op.kind.rpartition(".")[2], computes, place) if part)


def _llvm_lines(text: str) -> list[tuple[int, int]]:
    places = {number: int(line) for number, line in _DEBUG_LOCATION.findall(text)}
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
        place = _ASSEMBLY_LOCATION.match(line)
        if place:
            at = int(place[1])
        elif at and line.startswith(("\t", " ")) and not line.lstrip().startswith("."):
            found.append((number, at))
    return found
