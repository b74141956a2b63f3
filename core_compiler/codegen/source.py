"""Kernel IR to Python source that Numba compiles: the common part of all targets.

The source is readable: buffers and loops keep their names, values used once are inlined at their
use, and comments name the model's ops. Each line maps to its kernel op.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Any

from core_compiler.codegen.expressions import (
    INFIX,
    bitcast,
    bool_text,
    cast,
    dense,
    float_text,
    index_text,
    number_text,
    total,
    vector_code,
    wrap,
)
from core_compiler.ir import Block, Function, Op, Value, VectorType
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.abi import ALIGN
from core_compiler.kernel_ir.ops import access, count_operand, element, is_pure, lane_axis
from core_compiler.kernel_ir.views import (
    Call,
    Constant,
    Extract,
    For,
    Shuffle,
    View,
    loop_kind,
)
from core_compiler.support.errors import InternalError, one_line

#: The entry of every generated module.
SYMBOL = "kernel"
_MAX_INLINE = 60
#: Longest comment that names an op of the model (characters).
MAX_NOTE = 200
#: Ops that are written as separate statements.
_STATEMENTS = frozenset(f"kernel.{n}" for n in ("for", "if", "store", "prefetch", "invoke", "view"))

#: Ops that are not pure but change no memory.
_READING = ("kernel.load", "kernel.prefetch")


@dataclass(frozen=True)
class Source:
    """Generated source: ``text``, and the kernel op of each line (from 1).

    ``lines``: rows ``[line, function, op number in walk order, op kind]``.
    """

    name: str
    text: str
    lines: tuple[tuple[int, str, int, str], ...]

    @property
    def symbol(self) -> str:
        return SYMBOL


class Writer:
    """Writes one kernel.

    A target's writer adds the function's head, memory accesses and the syntax of loops and numbers.
    """

    #: Whether ``a + b`` on floats is rounded once (a compiler may contract it otherwise).
    infix = True

    def __init__(self, function: Function):
        self.function = function
        #: Number of buffers that the kernel distinguishes: LLVM may assume that they are disjoint.
        self.buffers = 0
        self.lines: list[str] = []
        self.map: list[tuple[int, int, str]] = []
        self.names: dict[Any, str] = {}  # of values, and of trip counts as ("count", loop)
        self.used: set[str] = set(_RESERVED)
        self.inlined: dict[Value, str] = {}
        #: Inlined values whose text reads memory: no store may come between.
        self.reading: set[Value] = set()
        self.changing: set[str] = set()  # names of values that loops carry
        self.numbers = {op: n for n, op in enumerate(function.body.walk())}
        self.uses = use_counts(function.body)
        self.strides: dict[Value, list[str]] = {}
        self.indent = 1
        self.comment = ""

    def buffer_number(self) -> int:
        self.buffers += 1
        return self.buffers - 1

    # -- layout ----------------------------------------------------------------------------------

    def line(self, text: str, op: Op | None = None) -> None:
        note = self._note(op)
        if note and note != self.comment:
            self.lines.append("    " * self.indent + f"# {note}")
            self.comment = note
        self.lines.append("    " * self.indent + text)
        if op is not None:
            self.map.append((len(self.lines), self.numbers[op], op.kind))

    def _note(self, op: Op | None) -> str:
        """Describe the model's op: its frontend node's name and scope."""
        if op is None or op.origin is None or op.kind in ("kernel.for", "kernel.constant"):
            return ""
        nodes = op.origin.nodes()
        if not nodes:
            return ""
        node = nodes[0]
        text = f"{node.name} ({node.scope})" if node.scope else node.name
        return one_line(text, MAX_NOTE)  # names are the model's: a line break would end the comment

    def fresh(self, wanted: str | None) -> str:
        stem = re.sub(r"\W", "_", wanted or "v") or "v"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"v{stem}"
        name, number = stem, 0
        while name in self.used:
            number += 1
            name = f"{stem}_{number}"
        self.used.add(name)
        return name

    def name(self, value: Value) -> str:
        """Return the expression for a value at its use."""
        if value in self.inlined:
            return self.inlined[value]
        if value not in self.names:
            self.names[value] = self.fresh(value.name)
        return self.names[value]

    # -- blocks ----------------------------------------------------------------------------------

    def block(self, block: Block, only_pure: bool = False) -> None:
        for position, op in enumerate(block.ops):
            if op.kind == "kernel.alloc" or (only_pure and not is_pure(op)):
                continue
            self.op(op, block, position)

    def op(self, op: Op, block: Block | None = None, position: int = 0) -> None:
        special: Any = getattr(self, "_" + op.kind.removeprefix("kernel."), None)
        if op.kind in _STATEMENTS:
            special(op)
            return
        if op.result in self.names or op.result in self.inlined:
            return  # a bound that was written before the items
        if not self.uses.get(op.result):
            return
        text = special(op) if special is not None else self.scalar(op)
        plain = text.isdigit() or (text.isidentifier() and text not in self.changing)
        reads = op.kind == "kernel.load" or not self.reading.isdisjoint(op.operands)
        if (
            op.kind == "kernel.constant"
            or plain
            or self._can_inline(op, block, position, text, reads)
        ):
            self.inlined[op.result] = text
            if reads:
                self.reading.add(op.result)
        else:
            self.line(f"{self.name(op.result)} = {text}", op)

    def _can_inline(
        self, op: Op, block: Block | None, position: int, text: str, reads: bool
    ) -> bool:
        """Return whether a value may be inlined at its use.

        It may if it is used once, in its own block, and, if its text ``reads`` memory, no store,
        loop or branch is in between.
        """
        if block is None or self.uses.get(op.result, 0) != 1 or op.result in block.outputs:
            return False
        if len(text) > _MAX_INLINE:
            return False
        for other in block.ops[position + 1 :]:
            if op.result in other.operands:
                # A loop's header runs once; its body must not evaluate the expression again.
                return True
            if other.regions and op.result in other.uses():
                return False
            if reads and not is_pure(other) and other.kind not in _READING:
                return False
        return False

    def _for(self, op: Op) -> None:
        (body,) = op.regions
        carried = [self.name(v) for v in body.arguments[1:]]
        self.changing.update(carried)
        for inner, init in zip(carried, For.of(op).init, strict=True):
            self.line(f"{inner} = {self.name(init)}")
        lower, upper, step = map(self.name, For.of(op).bounds)
        if loop_kind(op) == "unrolled" and all(p.isdigit() for p in (lower, upper, step)):
            for value in range(int(lower), int(upper), int(step)):
                self._iteration(op, str(value), carried)
        else:
            self.names[body.arguments[0]] = self.fresh(For.of(op).name)
            self.counted(op, (lower, upper, step), carried)
        for result, inner in zip(op.results, carried, strict=True):
            self.names[result] = inner

    def counted(self, op: Op, bounds: tuple[str, str, str], carried: list[str]) -> None:
        """Write a loop over the range of ``bounds``: lower, upper, step."""
        lower, upper, step = bounds
        span = ", ".join(
            [upper]
            if (lower, step) == ("0", "1")
            else [lower, upper]
            if step == "1"
            else [lower, upper, step]
        )
        self.line(f"for {self.names[For.of(op).index]} in range({span}):", op)
        self.indent += 1
        before = len(self.lines)
        self.block(op.regions[0])
        self._assign_carried(op.regions[0], carried)
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= 1
        self.comment = ""

    def trip_count(self, loop: Op) -> str:
        lower, upper, step = map(self.name, For.of(loop).bounds)
        span = upper if lower == "0" else f"{upper} - {wrap(lower)}"
        return span if step == "1" else f"({wrap(span)} + {wrap(step)} - 1) // {wrap(step)}"

    def _iteration(self, op: Op, value: str, carried: list[str]) -> None:
        """Write one unrolled iteration with new names for its values."""
        (body,) = op.regions
        kept = dict(self.names), dict(self.inlined)
        self.inlined[body.arguments[0]] = value
        self.block(body)
        self._assign_carried(body, carried)
        self.names, self.inlined = kept

    def _assign_carried(self, body: Block, carried: list[str]) -> None:
        outputs = [self.name(v) for v in body.outputs]
        pairs = [(c, o) for c, o in zip(carried, outputs, strict=True) if c != o]
        others = {o for _, o in pairs}
        if any(c in others for c, _ in pairs):  # exchanged: assign all at once
            self.line(f"{', '.join(c for c, _ in pairs)} = {', '.join(o for _, o in pairs)}")
            return
        for c, o in pairs:
            self.line(f"{c} = {o}")

    def _if(self, op: Op) -> None:
        results = [self.name(v) for v in op.results]
        for word, region in zip(
            (f"if {self.name(op.operands[0])}:", "else:"), op.regions, strict=True
        ):
            if word == "else:" and not region.ops and not results:
                continue
            self.line(word, op)
            self.indent += 1
            before = len(self.lines)
            self.branch(region)
            for result, value in zip(results, region.outputs, strict=True):
                self.line(f"{result} = {self.name(value)}")
            if len(self.lines) == before:
                self.line("pass")
            self.indent -= 1
        self.comment = ""

    def branch(self, region: Block) -> None:
        """Write one side of a branch."""
        self.block(region)

    # -- the function ----------------------------------------------------------------------------

    def prologue(self, levels: list[Block], nest: list[Op]) -> None:
        """Write, before the work items, the index arithmetic of the function and of inner bounds.

        ``levels`` are the blocks around the loops of ``nest``, outermost first.
        """
        self.block(levels[0], only_pure=True)
        needed = {v for loop in nest[1:] for v in For.of(loop).bounds}
        for level in levels[1:]:
            wanted = closure(level, needed)
            for op in level.ops:
                if op in wanted:
                    self.op(op)

    def scratch_end(self, op: Op, offset: str) -> str:
        """Write the end of a scratch buffer that begins at byte ``offset``; return its name."""
        value, sizes = op.result, iter(op.operands)
        dims = [self.name(next(sizes)) if isinstance(d, str) else str(d) for d in value.type.shape]
        self.strides[value] = dense(dims)
        amount = " * ".join([*map(wrap, dims), str(value.type.dtype.bytes)])
        end = self.fresh(f"{self.name(value)}_end")
        self.line(f"{end} = {total(offset, f'({amount} + {ALIGN - 1}) // {ALIGN} * {ALIGN}')}")
        return end

    # -- memory ----------------------------------------------------------------------------------

    def _view(self, op: Op) -> None:
        memory, *starts = op.operands
        element_index, code = self._element(memory, starts), scalars.code_name(memory.type.dtype)
        view, strides = View.of(op), self.strides[memory]
        kept = [s for axis, s in enumerate(strides) if axis not in view.dropped]
        self.strides[op.result] = [*kept[: len(kept) - view.merged], *kept[-1:]]
        self.line(
            f"{self.name(op.result)} = offset_{code}({self.name(memory)}, {element_index})", op
        )

    def element_index(self, op: Op) -> str:
        """Return the element number at which a load or store starts."""
        return self._element(*access(op))

    def _element(self, buffer: Value, indices) -> str:
        terms, known = [], 0
        for index, stride in zip(indices, self.strides[buffer], strict=True):
            text = self.name(index)
            if stride == "0" or text == "0":
                continue
            if text.isdigit() and stride.isdigit():
                known += int(text) * int(stride)
            elif stride == "1":
                terms.append(text)
            else:
                terms.append(f"{wrap(text)} * {wrap(stride)}")
        if known or not terms:
            terms.append(str(known))
        return " + ".join(terms)

    def element_text(self, buffer: Value, element_index: str) -> str:
        """Return the expression that reads one element."""
        return f"{self.name(buffer)}[{element_index}]"

    def assignment(self, buffer: Value, element_index: str, value: str) -> str:
        """Return the statement that writes one element."""
        return f"{self.name(buffer)}[{element_index}] = {value}"

    def _load(self, op: Op) -> str:
        buffer, _ = access(op)
        if not isinstance(op.result.type, VectorType):
            return self.element_text(buffer, self.element_index(op))
        return self._vector_access("load", "gather", op, op.result.type, ())

    def _store(self, op: Op) -> None:
        buffer, _ = access(op)
        value = op.operands[0]
        if not isinstance(value.type, VectorType):
            self.line(self.assignment(buffer, self.element_index(op), self.name(value)), op)
            return
        self.line(self._vector_access("store", "scatter", op, value.type, (self.name(value),)), op)

    def _vector_access(
        self, contiguous: str, strided: str, op: Op, kind: VectorType, value: tuple
    ) -> str:
        buffer, _ = access(op)
        stride, count = self.strides[buffer][lane_axis(op)], count_operand(op)
        form, head = vector_code(kind), [self.name(buffer), self.element_index(op), *value]
        if stride != "1":
            count = str(kind.width) if count is None else self.name(count)
            return f"{strided}_{form}({', '.join([*head, stride, count])})"
        if count is None:
            return f"{contiguous}_{form}({', '.join(head)})"
        return f"{contiguous}_some_{form}({', '.join([*head, self.name(count)])})"

    # -- values ----------------------------------------------------------------------------------

    def _constant(self, op: Op) -> str:
        kind, value = op.result.type, Constant.of(op).value
        if kind is INDEX:
            return str(value) if value >= 0 else f"({value})"
        lane = element(kind)
        if lane.kind == "bool":
            text = f"boolean({bool(value)})"
        elif lane.is_float:
            text = f"{scalars.code_name(lane)}({float_text(value)})"
        elif scalars.is_code(lane):
            text = f"i32({int(value) & ((1 << lane.bits) - 1)})"
        else:
            text = f"{scalars.code_name(lane)}({int(value)})"
        return f"splat_{vector_code(kind)}({text})" if isinstance(kind, VectorType) else text

    def _broadcast(self, op: Op) -> str:
        return f"splat_{vector_code(op.result.type)}({self.name(op.operands[0])})"

    def _lanes(self, op: Op) -> str:
        return f"lanes_{vector_code(op.result.type)}()"

    def _extract(self, op: Op) -> str:
        vector, lane = op.operands[0], Extract.of(op).lane
        return f"lane_{vector_code(vector.type)}({self.name(vector)}, {lane})"

    def _shuffle(self, op: Op) -> str:
        v, w = map(self.name, op.operands)
        lanes = Shuffle.of(op).mask
        mask = ", ".join(map(str, lanes)) + ("," if len(lanes) == 1 else "")
        return f"shuffle_{vector_code(op.operands[0].type)}({v}, {w}, ({mask}))"

    def _call(self, op: Op) -> str:
        return f"{Call.of(op).callee}({', '.join(map(self.name, op.operands))})"

    def _bitcast(self, op: Op) -> str:
        return bitcast(self.name(op.operands[0]), op.operands[0].type, op.result.type)

    def _cast(self, op: Op) -> str:
        source, target = element(op.operands[0].type), element(op.result.type)
        width = op.result.type.width if isinstance(op.result.type, VectorType) else None
        return cast(self.name(op.operands[0]), source, target, width, op.get("saturate", True))

    def scalar(self, op: Op) -> str:
        """Return the expression of a scalar op, lane by lane on vectors."""
        name = op.kind.removeprefix("kernel.")
        operands = [self.name(v) for v in op.operands]
        lane = element(op.operands[-1].type)
        kind = op.operands[-1].type
        suffix = f"x{kind.width}" if isinstance(kind, VectorType) else ""
        if lane is INDEX:
            return index_text(name, operands)
        if name in scalars.SWAPPED:
            name, operands = scalars.SWAPPED[name], operands[::-1]
        if lane.kind == "bool":
            return bool_text(name, operands, suffix)
        if scalars.is_code(lane):
            if name != "select":
                raise InternalError(f"{op.kind} on {lane}: expected a wider type after lowering")
            return f"select_i32{suffix}({', '.join(operands)})"
        if self.infix and lane.is_float and name in INFIX:
            return f"{wrap(operands[0])} {INFIX[name]} {wrap(operands[1])}"
        code = scalars.code_name(lane)
        return number_text(name, operands, lane, code, suffix)


_RESERVED = frozenset(
    [
        "range",
        "min",
        "max",
        "size",
        "kernel",
        "compiled",
        "numba",
        "f32",
        "f64",
        "i8",
        "i16",
        "i32",
        "i64",
        "u8",
        "u16",
        "u32",
        "u64",
        "boolean",
    ]
)


def use_counts(body: Block) -> dict[Value, int]:
    counts: dict[Value, int] = {}
    for op in body.walk():
        for value in op.operands:
            counts[value] = counts.get(value, 0) + 1
        for region in op.regions:
            for value in region.outputs:
                counts[value] = counts.get(value, 0) + 1
    return counts


def closure(block: Block, wanted: set[Value]) -> set[Op]:
    """Return the ops of ``block`` that compute ``wanted``."""
    producers, found = block.producers(), set()
    stack = [producers[v] for v in wanted if v in producers]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack += [producers[v] for v in op.operands if v in producers]
    return found
