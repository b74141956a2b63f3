"""Graphviz drawings of small modules, for papers, issues and notebook cells.

The text is in Graphviz's DOT language (https://graphviz.org/doc/info/lang.html).  It is laid out by
the package pygraphviz, which bundles Graphviz, or by an installed ``dot``.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Block, Module, Op, TensorType, Value
from core_compiler.ir.attributes import Dense
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.markup import escape
from core_compiler.support.errors import UserError

#: Larger modules are not drawn: `dot` takes minutes on long edges, and the result is unreadable.
MAX_OPS = 300
_HEAD = """digraph module {
  graph [rankdir=TB, nodesep=0.25, ranksep=0.35, fontname="Helvetica", fontsize=10];
  node [shape=box, style="rounded,filled", fillcolor="#ffffff", color="#57606a",
        fontname="Helvetica", fontsize=10, margin="0.1,0.05", height=0.3];
  edge [color="#8a93a0", arrowsize=0.6, fontname="Helvetica", fontsize=8];"""


@dataclass(frozen=True)
class Drawing:
    """A drawing whose DOT text is ``dot``; a notebook shows it if Graphviz is installed."""

    dot: str

    @property
    def svg(self) -> str:
        """Return the drawing as SVG; raise UserError if Graphviz is not installed."""
        return _svg(self.dot)

    @override
    def __str__(self) -> str:
        return self.dot

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": self.dot, **({"text/html": self.svg} if available() else {})}


def draw(module: Module, function: str = "main", most: int = MAX_OPS) -> Drawing:
    """Draw the ops of ``function``, the values that flow between them, and groups as frames.

    Constants are shown in the boxes of their users.  Raise UserError if there are more than
    ``most`` ops.
    """
    body = module.functions[function].body
    count = sum(_boxes(body))
    if count > most:
        raise UserError(
            f"cannot draw {count} ops (at most {most} are drawn)",
            function,
            "open it in the workbench",
        )
    lines = [_HEAD]
    names: dict[Value, str] = {}
    # Emitted after all boxes: an edge inside a frame would pull its endpoints into it.
    edges: list[str] = []
    for number, value in enumerate(body.arguments):
        names[value] = f"in{number}"
        label = _label(value.name or f"input {number}", [_type(value)])
        lines.append(f'  in{number} [label={label}, shape=ellipse, fillcolor="#eef0f3"];')
    lines += _block(body, names, edges, "n", "  ")
    for number, value in enumerate(body.outputs):
        label = _label(f"output {number}", [])
        lines.append(f'  out{number} [label={label}, shape=ellipse, fillcolor="#eef0f3"];')
        if value in names:
            edges.append(f"  {names[value]} -> out{number};")
    return Drawing("\n".join([*lines, *edges, "}"]) + "\n")


def available() -> bool:
    """Return whether a drawing can be laid out on this machine."""
    return bool(graphviz())


def graphviz() -> str:
    """Return the layout program: ``pygraphviz``, the path of ``dot``, or "" if there is none."""
    if importlib.util.find_spec("pygraphviz") is not None:
        return "pygraphviz"
    return shutil.which("dot") or ""


def _boxes(block: Block) -> Iterator[bool]:
    """Yield for each op whether it has a box of its own."""
    constants: set[Value] = set()
    for op in block.ops:
        if _is_folded(op, constants):
            constants.update(op.results)
            continue
        yield True
        for region in op.regions:
            yield from _boxes(region)


def _is_folded(op: Op, constants: Container[Value]) -> bool:
    """Return whether an op is shown in its users' boxes: constants and broadcasts of them."""
    if op.kind == "core.broadcast":
        return op.operands[0] in constants
    return op.kind in CONSTANTS


def _block(
    block: Block, names: dict[Value, str], edges: list[str], prefix: str, indent: str
) -> Iterator[str]:
    """Yield the boxes of a block.

    ``names`` receives the box that defines each value, ``edges`` the edges to its users.
    """
    constants: dict[Value, str] = {}
    for number, op in enumerate(block.ops):
        name = f"{prefix}{number}"
        if _is_folded(op, constants):
            source = constants.get(op.operands[0]) if op.operands else None
            constants |= {value: source or _constant(op) for value in op.results}
            continue
        if op.regions and op.kind == "core.group":
            yield f"{indent}subgraph cluster_{name} {{"
            yield f'{indent}  style="rounded"; color="#a9b2bd";'
            (inner,) = op.regions
            inner_names = dict(names)
            for outer, argument in zip(op.operands, inner.arguments, strict=True):
                if outer in names:
                    inner_names[argument] = names[outer]
            yield from _block(inner, inner_names, edges, f"{name}_", f"{indent}  ")
            yield f"{indent}}}"
            for value, made in zip(op.results, inner.outputs, strict=True):
                if made in inner_names:
                    names[value] = inner_names[made]
            continue
        folded = [constants[v] for v in op.operands if v in constants]
        rows = [*(_type(v) for v in op.results), *folded]
        yield f"{indent}{name} [label={_label(op.kind.partition('.')[2], rows)}];"
        producers = [names[value] for value in dict.fromkeys(op.operands) if value in names]
        edges += [f"  {producer} -> {name};" for producer in producers]
        names |= dict.fromkeys(op.results, name)


def _constant(op: Op) -> str:
    """Return the label of a constant in its user's box: a scalar's value, else the type."""
    value = op.get("value")
    if isinstance(value, Dense) and value.array().size == 1:
        return f"{value.array().item():g}"
    return f"constant {_type(op.results[0])}"


def _type(value: Value) -> str:
    found = value.type
    if isinstance(found, TensorType):
        return f"{found.dtype} {'x'.join(str(n) for n in found.shape)}".strip()
    return str(found)


def _label(title: str, rows: list[str]) -> str:
    detail_rows = "".join(f'<br/><font point-size="8">{escape(row)}</font>' for row in rows)
    return f"<<b>{escape(title)}</b>{detail_rows}>"


def _svg(dot: str) -> str:
    layout_program = graphviz()
    if layout_program == "pygraphviz":
        import pygraphviz

        made = pygraphviz.AGraph(string=dot).draw(format="svg", prog="dot").decode("utf-8")
    elif layout_program:
        made = subprocess.run(
            [layout_program, "-Tsvg"], input=dot, capture_output=True, text=True, check=True
        ).stdout
    else:
        raise UserError(
            "Graphviz is not installed", "draw", "pip install pygraphviz, or use .dot, the text", 3
        )
    return made[made.index("<svg") :]
