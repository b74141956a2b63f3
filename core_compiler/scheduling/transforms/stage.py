"""Staging of operand tiles in private memory, and packing of an argument's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.ir import Block, Function, Op, Value
from core_compiler.ir.types import buffer
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import Constant, For
from core_compiler.scheduling.transforms.bytes import TERMS, Word, word_of
from core_compiler.scheduling.transforms.collapse import Numbering
from core_compiler.scheduling.transforms.edit import (
    Copier,
    Refused,
    bound_at_top,
    buffer_argument,
    constant_of,
    depends_on,
    expect,
    expression,
    find_loop,
    need,
    producers,
    rebuild,
    requires,
    span,
)


def stage(
    function: Function,
    operand: str,
    inside: str,
    dims: Sequence[str | Sequence[str]],
    name: str,
    shape: Sequence[int | None],
    space: str = "scratch",
    order: Sequence[str] = (),
    as_bytes: bool = False,
) -> Function:
    """Copy what loop ``inside`` reads of ``operand`` to the memory ``name`` first, and read that.

    ``dims`` are the dimensions of the layout and the loops of the copy, outermost first: loops
    inside ``inside`` that the value depends on, and optionally a tuple of reduction loops that form
    one dimension, the number of their iteration. ``shape`` has the extent of each: a number (at
    least the loop's extent: a larger one pads the rows), or None for the loop's own bound; leading
    Nones are merged into one dimension. A value that a condition selects (padding) is staged after
    the selection, so that only the copy evaluates the condition, and a value that is widened is
    staged wide. ``as_bytes``: words of bytes (:func:`four_terms`) are copied byte by byte, the last
    dimension then has an extent of bytes. ``order``: the loops of the copy if they do not follow
    the layout, outermost first.
    """
    defs = producers(function)
    loop = find_loop(function, inside)
    value = _read_value(loop, buffer_argument(function, operand), defs)
    axes = [_Axis.of(function, d) for d in dims]
    chain = [op for axis in axes for op in axis.loops]
    words = axes[-1].loops[-1]
    word = Word.of(words, buffer_argument(function, operand), defs) if as_bytes else None
    if order:
        need(
            sorted(order) == sorted(For.of(op).name for op in chain),
            f"order must list the loops {dims}",
        )
        chain.sort(key=lambda op: order.index(For.of(op).name))
    ivs = [For.of(op).index for op in chain]
    within = _defined_in(loop)
    visible = (set(defs) - within) | {*ivs, *loop.regions[0].arguments}
    other = {v for op in loop.walk() for r in op.regions for v in r.arguments} - visible
    need(
        not depends_on([value], other, defs),
        f"{operand} also varies along loops other than {dims}",
    )
    merged = sum(s is None for s in shape)
    extents = [expect(s, "only leading extents may be left to the loops") for s in shape[merged:]]
    need(all(a.numbering is None for a in axes[:merged]), "a numbered dimension needs an extent")
    notes: list[str] = []
    memory: list[Value] = []

    def prologue(copier: Copier) -> None:
        kb = copier.kb
        total = kb.index(1)
        for axis in axes[:merged]:
            total = kb.mul(total, bound_at_top(kb, axis.loops[0].operands[1], defs))
        for size, axis in zip(extents, axes[merged:], strict=True):
            bound = axis.bound(kb, defs)
            if bound is None:
                notes.append(f"{axis.name}: at most {size} iterations")
            else:
                bound *= TERMS if word is not None and words in axis.loops else 1
                need(bound <= size, f"{axis.name} runs up to {bound} times, got the extent {size}")
        known = kb.known(total)
        lead = [] if not merged else [f"{name}_tiles" if known is None else known]
        sizes = [total] if lead and known is None else []
        kind = value.type if word is None else word.dtype
        memory.append(kb.alloc((*lead, *extents), kind, *sizes, space=space, name=name))

    def address(copier: Copier) -> list[Value]:
        kb = copier.kb
        indices = [axis.index(copier) for axis in axes]
        lead: Any = 0  # an index, or the initial number
        for index, axis in zip(indices[:merged], axes, strict=False):
            lead = kb.add(kb.mul(lead, copier[axis.loops[0].operands[1]]), index)
        return [lead, *indices[merged:]] if merged else indices

    def fill(copier: Copier, depth: int = 0) -> None:
        """Emit the loops of the copy from level ``depth`` on."""
        if depth == len(chain):
            copier.ops(expression(value, defs, visible))
            copier.kb.store(copier[value], memory[0], *address(copier))
            return
        op = chain[depth]
        if word is not None and op is words:
            copy_bytes(copier, op)
            return
        for bound in For.of(op).bounds:
            copier.ops(expression(bound, defs, visible))
        bounds = [copier[v] for v in For.of(op).bounds]
        with copier.kb.loop(f"{For.of(op).name}_{name}", *bounds, loop="vector") as iv:
            copier.env[ivs[depth]] = iv
            fill(copier, depth + 1)

    def copy_bytes(copier: Copier, op: Op) -> None:
        """Emit the copy of the bytes of all words of the loop ``op``."""
        kb = copier.kb
        assert word is not None
        for bound in op.operands[:2]:
            copier.ops(expression(bound, defs, visible))
        lower, upper = (kb.mul(copier[v], TERMS) for v in op.operands[:2])
        size = copier[word.size]
        copier.env[For.of(op).index] = copier[op.operands[0]]
        *rest, start = address(copier)
        end = kb.min(upper, size)
        with kb.loop(f"{For.of(op).name}_{name}", lower, end, loop="vector") as iv:
            copier.env[word.position] = iv
            copier.ops(expression(word.first, defs, {*visible, word.position}))
            byte = kb.cast(copier[word.first], word.dtype)
            kb.store(byte, memory[0], *rest, kb.add(kb.mul(start, TERMS), kb.sub(iv, lower)))
        with kb.loop(f"{For.of(op).name}_{name}_end", end, upper) as iv:
            zero = kb.number(0, word.dtype)
            kb.store(zero, memory[0], *rest, kb.add(kb.mul(start, TERMS), kb.sub(iv, lower)))

    def read(copier: Copier, op: Op) -> None:
        kb = copier.kb
        if word is None:
            copier.env[value] = kb.load(memory[0], *address(copier), name=value.name)
            return
        *rest, start = address(copier)
        four = kb.load(memory[0], *rest, kb.mul(start, TERMS), width=TERMS, name=value.name)
        copier.env[value] = kb.op("bitcast", four, dtype=value.type)

    def hook(copier: Copier, op: Op) -> None:
        def body():
            saved = dict(copier.env)
            fill(copier)
            copier.env.clear()
            copier.env.update(saved)
            copier.hooks[defs[value]] = read
            return copier.block(op.regions[0])

        copier.loop(op, body=body)

    return requires(rebuild(function, {loop: hook}, prologue), *notes)


@dataclass(frozen=True)
class _Axis:
    """A dimension of a staged layout: one loop, or numbered reduction loops."""

    name: str
    loops: tuple[Op, ...]
    numbering: Numbering | None = None

    @staticmethod
    def of(function: Function, what: str | Sequence[str]) -> _Axis:
        if isinstance(what, str):
            op, defs = find_loop(function, what), producers(function)
            need(constant_of(For.of(op).step, defs) == 1, f"{what} does not step by 1")
            return _Axis(what, (op,))
        numbering = Numbering(function, what)
        return _Axis(" ".join(what), tuple(numbering.loops), numbering)

    def index(self, copier: Copier) -> Value:
        if self.numbering is not None:
            return self.numbering.number(copier)
        (op,) = self.loops
        return copier.kb.sub(copier[For.of(op).index], copier[op.operands[0]])

    def bound(self, kb, defs) -> int | None:
        """Return the maximum number of iterations if it is known."""
        first = self.loops[0]
        if len(self.loops) > 1:
            return None
        if self.numbering is not None:
            return span(first.operands[1], first.operands[0], defs)
        return _known_bound(kb, first, defs)


def _read_value(loop: Op, source: Value, defs: Mapping[Value, Op]) -> Value:
    """Return the value that ``loop`` reads of ``source``.

    It is a word of its bytes, the load, the selection around it, or the widening of either.
    """
    word = word_of(loop, source, defs)
    if word is not None:
        return word
    loads = [o for o in loop.walk() if o.kind == "kernel.load" and access(o)[0] is source]
    need(len(loads) == 1, f"expected one load of {source.name}, got {len(loads)}")
    value = loads[0].result
    for op in loop.walk():
        if op.kind == "kernel.if" and any(value in r.outputs for r in op.regions):
            need(len(op.results) == 1, "the branch around the load has other results")
            value = op.result
            break
    while True:
        users = [o for o in loop.walk() if value in o.operands]
        if len(users) != 1 or not (users[0].kind == "kernel.select" or _is_widening(users[0])):
            return value
        value = users[0].result


def _is_widening(op: Op) -> bool:
    return op.kind == "kernel.cast" and scalars.is_widened(op.operands[0].type, op.result.type)


def _defined_in(loop: Op) -> set[Value]:
    inside = {v for op in loop.walk() if op is not loop for v in op.results}
    return inside | {v for op in loop.walk() for r in op.regions for v in r.arguments}


def _known_bound(kb, op: Op, defs) -> int | None:
    if constant_of(op.operands[0], defs) != 0:
        return None
    try:
        return kb.known(bound_at_top(kb, op.operands[1], defs))
    except Refused:
        return None


def widened_element(loop: Op, source: Value) -> Value | None:
    """Return the wider value that ``loop`` makes of each element of a buffer, and uses, or None."""
    loads = [o.result for o in loop.walk() if o.kind == "kernel.load" and access(o)[0] is source]
    users = [o for o in loop.walk() if any(v in loads for v in o.operands)]
    return users[0].result if len(loads) == len(users) == 1 and _is_widening(users[0]) else None


def pack_argument(
    function: Function,
    operand: str,
    axis: int,
    tile: int,
    numbered: Sequence[str],
    widened: bool = False,
) -> Function:
    """Read ``operand`` in panels ``[panel][term][lane]``.

    ``tile`` elements of axis ``axis`` are adjacent, and rows of them are in the order of the terms
    of the sum over the loops ``numbered``. ``operand`` may depend on that axis and on those loops
    only; ``widened``: its elements are packed as what the kernel widens them to. The caller
    provides the packed data, with the last panel padded by zeros. New index arguments are
    ``<operand>_panels``, ``<operand>_terms`` (terms of the whole sum) and ``<operand>_panel``
    (elements of a panel). Every read must use an index from which the panel is known.
    """
    defs = producers(function)
    old = buffer_argument(function, operand)
    numbering = Numbering(function, numbered)
    panels, terms, stride = (f"{operand}_{part}" for part in ("panels", "terms", "panel"))
    word = word_of(numbering.loops[0], old, defs)
    if widened:
        word = expect(widened_element(numbering.loops[0], old), f"{operand} is not widened")
    kept = old.type.dtype if word is None else word.type
    kind = buffer((panels, terms, tile), kept, (stride, tile, 1))
    new = Value(kind, old.name)
    own = {For.of(op).index for op in numbering.loops}

    def load(copier: Copier, op: Op) -> None:
        kb = copier.kb
        read = op if word is None else loads[0]
        where = access(read)[1]
        panel, lane = quotient_and_remainder(copier, where[axis], tile, defs)
        for i, index in enumerate(where):
            need(i == axis or depends_on([index], own, defs), f"axis {i} of {operand} varies")
        start = kb.mul(copier[numbering.loops[0].operands[0]], numbering.taps(copier))
        term = kb.add(start, numbering.number(copier))
        copier.env[op.result] = kb.load(new, panel, term, lane, name=op.result.name)

    uses = ("kernel.load", "kernel.store")
    loads = [o for o in function.body.walk() if o.kind in uses and access(o)[0] is old]
    need(all(o.kind == "kernel.load" for o in loads), f"{operand} is stored to")
    hooks = dict.fromkeys(loads if word is None else [defs[word]], load)
    swapped = function.with_(
        body=Block(tuple(new if v is old else v for v in function.arguments), function.body.ops, ())
    )
    return rebuild(swapped, hooks, sizes=(panels, terms, stride))


def quotient_and_remainder(copier: Copier, value: Value, by: int, defs) -> tuple[Value, Value]:
    """Return ``(value // by, value % by)`` for a ``value`` spelled ``x * by + y``, y < by."""
    if by == 1:
        return copier[value], copier.kb.index(0)
    op = defs.get(value)
    if op is not None and op.kind == "kernel.add" and value in op.results:
        for product, rest in (op.operands, reversed(op.operands)):
            producer = defs.get(product)
            if producer is not None and producer.kind == "kernel.mul":
                factor = constant_of(producer.operands[1], defs)
                if factor == by and _is_below(copier, rest, by, defs):
                    return copier[producer.operands[0]], copier[rest]
    raise Refused(f"cannot divide {op} into quotient and remainder by {by}")


def _is_below(copier: Copier, value: Value, limit: int, defs) -> bool:
    """Return whether an index of loops from 0 on is known to be below ``limit``."""
    most = maximum_value(value, defs)
    return most is not None and most < limit


def maximum_value(value: Value, defs) -> int | None:
    """Return the maximum of a sum of loop indices (from 0 on, times constants).

    Return None if it is unknown or the value has another form.
    """
    op = defs.get(value)
    if op is None:
        return None
    if op.kind == "kernel.constant":
        return Constant.of(op).index
    if value not in op.results:  # a loop's index
        if constant_of(op.operands[0], defs) != 0:
            return None
        bound = constant_of(op.operands[1], defs)
        upper = defs.get(op.operands[1])
        if bound is None and upper is not None and upper.kind == "kernel.min":
            found = [constant_of(v, defs) for v in upper.operands]
            bound = min((b for b in found if b is not None), default=None)
        return None if bound is None else bound - 1
    if op.kind not in ("kernel.add", "kernel.mul"):
        return None
    a, b = (maximum_value(v, defs) for v in op.operands)
    if a is None or b is None or min(a, b) < 0:
        return None
    return a + b if op.kind == "kernel.add" else a * b
