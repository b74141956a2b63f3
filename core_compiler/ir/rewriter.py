"""The rewriter: a mutable view of one block that ends in the next immutable block.

Every change goes through :meth:`Rewriter.replace`, which is also the step log: rule, ops before,
ops after, and the map from old values to new ones. The rewriter sets origins; passes never do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core_compiler.ir.claims import Claim
from core_compiler.ir.core import Block, Op, Value
from core_compiler.ir.origin import Origin
from core_compiler.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Rounding:
    """A declaration: numbers are limited to ``low`` to ``high``, and rounded by half a ``step``.

    A hundredth of a step more is what f32 loses where integers have 16 bits.
    """

    step: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The greatest difference from the limited number."""
        return 0.51 * self.step


@dataclass(frozen=True, eq=False, slots=True)
class Rewrite:
    """The application of a rule, the unit that the user steps through.

    ``values`` maps each replaced value to the value that now has its meaning; a value that the new
    ops define again maps to itself. ``tolerance`` is None for an exact rule (bits are preserved),
    else the bound ``|new - old| <= tolerance * max|old|`` that the rule declares (0.0: equal values
    whose bits may differ, as +0 and -0). ``attributes`` are those of the function that it sets
    (None: it removes one). ``except_for``: classes of values (`debug.adversarial.CLASSES`) for
    which the rule declares a difference. ``in_f64``: the difference of both sides in f64, relative
    to the largest value, if one approximates the other (0.0: they are the same function).
    ``steps``: by as many may results of integer dtypes differ (``tolerance`` is then as large).
    ``claim``: the function computed by ops that replace nothing. ``room``: new values with capacity
    for more elements than the data fill; the valid elements come first along each axis.
    ``rounding``: what is done to the old value, in place of a bound on the difference.
    """

    rule: str
    source: str
    old: tuple[Op, ...]
    new: tuple[Op, ...]
    values: Mapping[Value, Value]
    function: str = "main"
    tolerance: float | None = None
    note: str = ""
    microseconds: float = 0.0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    except_for: tuple[str, ...] = ()
    in_f64: float = 0.0
    claim: Claim | None = None
    room: frozenset[Value] = frozenset()
    steps: int = 0
    rounding: Rounding | None = None


class RewriteLimit(Exception):
    """Raised when the pass has done the first n rewrites to which it was limited."""


@dataclass
class Budget:
    """The number of rewrites that a pass may still do; None is unlimited."""

    left: int | None = None

    def spend(self) -> None:
        if self.left is not None:
            if self.left <= 0:
                raise RewriteLimit
            self.left -= 1


@dataclass
class Rewriter:
    """Edits ``block``; see the module docstring.

    ``rule`` names are given per replacement. ``events`` collects the rewrites, in order.
    """

    block: Block
    function: str = "main"
    events: list[Rewrite] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self):
        self._slots: list[list[Op]] = [[op] for op in self.block.ops]
        self._slot_of: dict[Op, int] = {op: i for i, op in enumerate(self.block.ops)}
        self._producer: dict[Value, Op] = self.block.producers()
        self._users: dict[Value, dict[Op, None]] = {}
        for op in self.block.ops:
            self._link(op)
        self.outputs = self.block.outputs
        self._changed = False
        self._unsorted = False
        self._clock = time.perf_counter()

    # -- reading ---------------------------------------------------------------------------------

    @property
    def ops(self) -> list[Op]:
        """The current ops in program order."""
        return [op for slot in self._slots for op in slot]

    def __contains__(self, op: Op) -> bool:
        return op in self._slot_of

    def now(self, op: Op) -> Op | None:
        """Return the current form of an op that :attr:`ops` listed before.

        It is the op itself, or the op after replacements of its operands; None if it was removed.
        """
        if op in self:
            return op
        found = self.producer(op.results[0]) if op.results else None
        return found if found is not None and found.kind == op.kind else None

    def producer(self, value: Value) -> Op | None:
        """Return the op of this block that defines ``value``; None for other values."""
        return self._producer.get(value)

    def users(self, value: Value) -> tuple[Op, ...]:
        """Return the ops that use ``value`` (also inside their regions)."""
        return tuple(self._users.get(value, ()))

    def is_output(self, value: Value) -> bool:
        return value in self.outputs

    def has_one_use(self, value: Value) -> bool:
        """Return whether ``value`` has exactly one use and is not an output of the block."""
        users = self.users(value)
        return len(users) == 1 and not self.is_output(value) and users[0].uses().count(value) == 1

    # -- changing --------------------------------------------------------------------------------

    def replace(
        self,
        old: Op | Sequence[Op],
        new: Op | Sequence[Op],
        values: Mapping[Value, Value] | None = None,
        *,
        rule: str,
        source: str = "",
        tolerance: float | None = None,
        note: str = "",
        reason: str = "",
        at: Op | None = None,
        except_for: tuple[str, ...] = (),
        in_f64: float = 0.0,
        claim: Claim | None = None,
        steps: int = 0,
        rounding: Rounding | None = None,
    ) -> list[Op]:
        """Replace ``old`` by ``new`` and redirect the users of old values to the new ones.

        ``values`` maps old results to new values; a result that a new op defines again needs no
        entry. ``at`` is the op whose position the new ops take (default: the last of ``old``).
        ``reason`` explains ops that replace nothing, ``claim`` declares the function that they
        compute. Return the new ops as inserted (with their origins). Raise :class:`RewriteLimit`
        when the pass's budget is spent.
        """
        self.budget.spend()
        old = (old,) if isinstance(old, Op) else tuple(old)
        new = (new,) if isinstance(new, Op) else tuple(new)
        for op in old:
            if op not in self._slot_of:
                raise InternalError(f"{rule}: {op} is no longer in the block")
        origin = self._origin(rule, old, reason)
        placed = [op if op.origin is not None else op.with_(origin=origin(op)) for op in new]
        remade = {v for op in placed for v in op.results}
        mapping = {v: v for op in old for v in op.results if v in remade}
        mapping.update(values or {})
        for op in old:
            for value in op.results:
                needed = self._users.get(value, {}).keys() - set(old) or self.is_output(value)
                if needed and value not in mapping:
                    raise InternalError(f"{rule}: {value} is still used but has no new value")
        slot, index = self._anchor(at or (old[-1] if old else None))
        for op in old:
            self._unlink(op)
            self._slots[self._slot_of.pop(op)].remove(op)
        index = min(index, len(self._slots[slot]))
        self._slots[slot][index:index] = placed
        for op in placed:
            self._slot_of[op] = slot
            self._link(op)
            for value in op.results:
                self._producer[value] = op
        self._redirect({a: b for a, b in mapping.items() if a is not b})
        self._changed = True
        # A user of an early old op may now precede the op that defines its operand, so commit
        # sorts.
        self._unsorted |= len(old) > 1 or at is not None or not old
        now = time.perf_counter()
        elapsed, self._clock = (now - self._clock) * 1e6, now
        self.events.append(
            Rewrite(
                rule,
                source,
                old,
                tuple(placed),
                mapping,
                self.function,
                tolerance,
                note,
                elapsed,
                except_for=except_for,
                in_f64=in_f64,
                claim=claim,
                steps=steps,
                rounding=rounding,
            )
        )
        return placed

    def insert(
        self,
        new: Op | Sequence[Op],
        *,
        before: Op | None = None,
        rule: str,
        reason: str = "",
        of: Op | None = None,
        note: str = "",
        claim: Claim | None = None,
    ):
        """Insert ops that replace nothing.

        Their origin is the op ``of``, or ``reason``. The event names ``of`` by its values, which
        stay unchanged; ``claim`` declares the function that the ops compute.
        """
        if of is not None and of.origin is not None:
            origin = Origin.derived(rule, [of.origin])
            new = (new,) if isinstance(new, Op) else new
            new = [op if op.origin is not None else op.with_(origin=origin) for op in new]
        values = {} if of is None else {v: v for v in of.results}
        return self.replace(
            (), new, values, rule=rule, reason=reason, at=before, note=note, claim=claim
        )

    def erase(self, op: Op | Sequence[Op], *, rule: str, note: str = "") -> None:
        """Remove ops whose results are unused."""
        self.replace(op, (), rule=rule, note=note)

    def set_output(
        self, index: int, value: Value, *, rule: str, tolerance: float | None = None
    ) -> None:
        """Make ``value`` output number ``index``; the other uses of the old output stay."""
        old = self.outputs[index]
        self.replace((), (), rule=rule, tolerance=tolerance)
        self.events[-1] = replace(self.events[-1], values={old: value})
        self.outputs = (*self.outputs[:index], value, *self.outputs[index + 1 :])

    def commit(self) -> Block:
        """Return the next block: the same object if nothing changed."""
        if not self._changed:
            return self.block
        ops = self.ops
        if self._unsorted:
            ops = stable_topological(ops)
        return Block(self.block.arguments, tuple(ops), tuple(self.outputs))

    # -- details ---------------------------------------------------------------------------------

    def _origin(self, rule, old, reason) -> Callable[[Op], Origin]:
        parents = [op.origin for op in old if op.origin is not None]
        if parents:
            if len(parents) == 1 and parents[0].rule == rule:
                return lambda op: parents[0]
            made = Origin.derived(rule, parents)
            return lambda op: made
        made = Origin.synthetic(rule, reason or f"made by {rule}")
        return lambda op: made

    def _anchor(self, op: Op | None) -> tuple[int, int]:
        if op is None:
            if not self._slots:
                self._slots.append([])
            return len(self._slots) - 1, len(self._slots[-1])
        slot = self._slot_of[op]
        return slot, self._slots[slot].index(op)

    def _link(self, op: Op) -> None:
        for value in op.uses():
            self._users.setdefault(value, {})[op] = None

    def _unlink(self, op: Op) -> None:
        for value in op.uses():
            self._users.get(value, {}).pop(op, None)
        for value in op.results:
            if self._producer.get(value) is op:
                del self._producer[value]

    def _redirect(self, mapping: Mapping[Value, Value]) -> None:
        if not mapping:
            return
        affected = dict.fromkeys(op for v in mapping for op in self._users.get(v, ()))
        for op in affected:
            rebuilt = op.substitute(mapping)
            slot = self._slot_of.pop(op)
            self._unlink(op)
            self._slots[slot][self._slots[slot].index(op)] = rebuilt
            self._slot_of[rebuilt] = slot
            self._link(rebuilt)
            for value in rebuilt.results:
                self._producer[value] = rebuilt
        self.outputs = tuple(mapping.get(v, v) for v in self.outputs)


def stable_topological(ops: Iterable[Op]) -> list[Op]:
    """Repair the program order: each op after its operands, otherwise as given."""
    ops = list(ops)
    maker = {v: op for op in ops for v in op.results}
    done: set[Op] = set()
    result: list[Op] = []
    for root in ops:
        stack = [(root, iter(root.uses()))]
        if root in done:
            continue
        entered = {root}
        while stack:
            op, uses = stack[-1]
            for value in uses:
                needed = maker.get(value)
                if needed is not None and needed is not op and needed not in done:
                    if needed in entered:
                        raise InternalError(f"cycle through {needed}")
                    entered.add(needed)
                    stack.append((needed, iter(needed.uses())))
                    break
            else:
                stack.pop()
                entered.discard(op)
                done.add(op)
                result.append(op)
    return result
