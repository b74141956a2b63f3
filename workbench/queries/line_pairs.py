"""Lines of the model in two recordings, with the cost of each in both.

Lines of one file match by their text, so that a line keeps its row when others were added above
it; nodes of a graph match by name and kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from typing_extensions import override

from workbench.queries.model_lines import NODES, Line, ModelLines, Place, traced
from workbench.queries.rows import short_path
from workbench.queries.run import Run

#: Files with more lines than this are matched by line number alone.
MAX_LINES = 20_000


def lines(run: Run, other: Run) -> dict[str, Any]:
    """Return ``rows``: the lines that have ops in either recording.

    A row has ``place``, ``text``, and for each side (None: no ops there) ``us`` of its own ops,
    ``all_us`` including callees, ``bytes``, and the numbers of ops ``import`` (at the import) and
    ``now`` (at the end of the compile). ``nodes``: the rows are the nodes of the graph because no
    lines are known. There are no rows if a side knows no lines.
    """
    sides = [traced(each) for each in (run, other)]
    if not all(each.lines for each in sides):
        return {"rows": [], "nodes": False}
    nodes = not all(any(place[0] != NODES for place in each.lines) for each in sides)
    ends = [_final_counts(each, found) for each, found in zip((run, other), sides, strict=True)]
    rows = []
    for a, b in _pairs(run, other, sides[0], sides[1], nodes):
        line = a or b
        assert line is not None
        of = sides[0 if a else 1]
        node = of.nodes[line.line - 1] if nodes else None
        rows.append(
            {
                "file": line.file,
                "line": line.line,
                "text": _text(run if a else other, line, of),
                "place": node.scope if node else f"{short_path(line.file)}:{line.line}",
                "a": None if a is None else _side(a, ends[0]),
                "b": None if b is None else _side(b, ends[1]),
            }
        )
    return {"rows": rows, "nodes": nodes}


def _final_counts(run: Run, found: ModelLines) -> Mapping[Place, int]:
    last = max(0, run.version.stages - 1)
    return run.cached(
        ("ops by line", last, run.version.stages),
        lambda: found.count(run.index(last).module, run.op_id),
    )


def _side(line: Line, end: Mapping[Place, int]) -> dict[str, Any]:
    return {
        "line": line.line,
        "op": line.op,
        "kernel": line.kernel,
        "us": line.own.us,
        "all_us": line.total.us,
        "bytes": line.own.bytes,
        "import": line.at_import,
        "now": end.get((line.file, line.line), 0),
    }


def _text(run: Run, line: Line, found: ModelLines) -> str:
    if line.file == NODES:
        node = found.nodes[line.line - 1]
        return f"{node.kind} {node.name}"
    texts = _texts(run, line.file)
    return (texts[line.line - 1] if 0 < line.line <= len(texts) else line.text).strip()


def _texts(run: Run, file: str) -> list[str]:
    return run.cached("sources", run.recording.sources).get(file, "").split("\n")


def _pairs(
    run: Run, other: Run, a: ModelLines, b: ModelLines, nodes: bool
) -> Iterator[tuple[Line | None, Line | None]]:
    ones, twos = _by_file(a, nodes), _by_file(b, nodes)
    partners = _files(list(ones), list(twos))
    for file, lines_a in ones.items():
        lines_b = twos.get(partners.get(file, file), {})
        same = _same_nodes(a, b) if nodes else _same_lines(run, other, file, partners.get(file))
        taken = set()
        for number, line in lines_a.items():
            match = lines_b.get(same.get(number, -1))
            if match is not None:
                taken.add(match.line)
            yield line, match
        yield from ((None, line) for number, line in lines_b.items() if number not in taken)
    known = set(partners.values())
    for file, lines_b in twos.items():
        if file not in known:
            yield from ((None, line) for line in lines_b.values())


def _by_file(found: ModelLines, nodes: bool) -> dict[str, dict[int, Line]]:
    made: dict[str, dict[int, Line]] = {}
    for (file, number), line in found.lines.items():
        if (file == NODES) == nodes:
            made.setdefault(file, {})[number] = line
    return made


def _files(ones: list[str], twos: list[str]) -> dict[str, str]:
    """Return the file of B for each file of A: by path, else the only one of the same name."""
    found = {file: file for file in ones if file in twos}
    for file in ones:
        candidates = [t for t in twos if t.rpartition("/")[2] == file.rpartition("/")[2]]
        if file not in found and len(candidates) == 1 and candidates[0] not in found.values():
            found[file] = candidates[0]
    return found


def _same_lines(run: Run, other: Run, file: str, there: str | None) -> Mapping[int, int]:
    """Return the line number in B of each line of A's ``file``."""
    if there is None:
        return {}
    left, right = _texts(run, file), _texts(other, there)
    if left == right or max(len(left), len(right)) > MAX_LINES or [""] in (left, right):
        return _Identity()
    found: dict[int, int] = {}
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        found |= {block.a + i + 1: block.b + i + 1 for i in range(block.size)}
    return found


class _Identity(dict[int, int]):
    """The identity mapping: each number is matched with itself."""

    @override
    def get(self, number: int, default: Any = None) -> int:
        return number


def _same_nodes(a: ModelLines, b: ModelLines) -> Mapping[int, int]:
    """Return the number in B of each node of A: the next one of the same name and kind."""
    numbers_of_node: dict[tuple[str, str], list[int]] = {}
    for number, node in enumerate(b.nodes, 1):
        numbers_of_node.setdefault((node.name, node.kind), []).append(number)
    found = {}
    for number, node in enumerate(a.nodes, 1):
        if numbers := numbers_of_node.get((node.name, node.kind)):
            found[number] = numbers.pop(0)
    return found
