"""The costs of the ops of a block and of its e-graph, by a target's model and an op's context."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from core_compiler.hardware.costs import CostModel
from core_compiler.ir import Op, TensorType, Value
from core_compiler.ops.base import definition

#: Constants of at most this many bytes are folded, whatever they are computed from (as in
#: fold_constants).
_SMALL = 256


class Prices:
    """The cost of an op among others; ``producers``: the ops that define each value.

    Elementwise ops read the operand of a broadcast in place.  An op on constants alone costs 1 if
    it is worth a constant of its own, which constant folding makes of it.  If a value may be
    defined by a broadcast or in another way, the other way includes the cost of the additional
    bytes that its reader reads.
    """

    def __init__(self, producers: Mapping[Value, Sequence[Op]], model: CostModel):
        self.producers, self.model = producers, model
        self.constants = _constants(producers)
        self._read: dict[Value, int] = {}

    def of(self, op: Op) -> int:
        """Return the price of ``op`` in bytes."""
        made = None if op.kind == "core.constant" else _made_of(op, self.constants)
        if made is not None and op.result.type.bytes <= max(_SMALL, made):
            return 1
        more = sum(_bytes(v) - self.read(v) for v in op.results)
        return self.model.price(op, self.read) + (0 if op.kind == "core.broadcast" else more)

    def read(self, value: Value) -> int:
        """Return the bytes of the elements of ``value`` in memory."""
        if value not in self._read:
            self._read[value] = least = _bytes(value)
            for op in self.producers.get(value, ()):
                if op.kind == "core.broadcast":
                    least = min(least, self.read(op.operands[0]))
            self._read[value] = least
        return self._read[value]


def _bytes(value: Value) -> int:
    """Return the size of a value, or 0 if unknown."""
    kind = value.type
    return kind.bytes if isinstance(kind, TensorType) and kind.is_static else 0


def total(ops: Iterable[Op], model: CostModel) -> int:
    """Return the total cost of ops in bytes."""
    ops = list(ops)
    prices = Prices({v: (op,) for op in ops for v in op.results}, model)
    return sum(map(prices.of, ops))


def _constants(producers: Mapping[Value, Sequence[Op]]) -> dict[Value, int]:
    """Return the values that depend on constants alone, with the bytes of those."""
    made: dict[Value, int] = {}
    readers: dict[Value, dict[Value, None]] = {}
    for value, ops in producers.items():
        for op in ops:
            for operand in op.operands:
                readers.setdefault(operand, {})[value] = None
    work = deque(producers)
    waiting = set(work)
    while work:
        value = work.popleft()
        waiting.discard(value)
        found = [bytes_ for op in producers[value] if (bytes_ := _made_of(op, made)) is not None]
        if found and (value not in made or min(found) < made[value]):
            made[value] = min(found)
            for reader in readers.get(value, ()):
                if reader not in waiting:
                    waiting.add(reader)
                    work.append(reader)
    return made


def _made_of(op: Op, made: Mapping[Value, int]) -> int | None:
    if op.kind == "core.constant":
        return op.result.type.bytes
    fixed = op.operands and not op.regions and "random" not in definition(op).traits
    known = fixed and len(op.results) == 1 and all(v in made for v in op.operands)
    static = known and op.result.type.is_static
    return sum(made[v] for v in op.operands) if static else None
