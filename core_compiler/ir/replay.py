"""Verification of a pass's log: replaying its events on the old stage must yield the new stage.

Checking single rewrites is only as good as the log: a change without an event is never evaluated.
Here the two stages are compared without the pass's code, using only the old ops, new ops and value
maps of its events:

- an op of the new stage is an op of the old stage, or a new op of an event, with the same operands
  or operands that value maps of events lead to from there;
- an op of the old stage still exists, or an event replaced it;
- outputs are the same values, or values that maps lead to.

The remaining differences become *synthetic* rewrites of the differing regions, which a checker
evaluates on tensors like any other. Value maps are checked too, so any value that maps lead to is
equivalent to its source. The order of ops is not compared: at the tensor level ops are pure, and at
the target level the stage is executed in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir.attributes import attributes_key
from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ir.rewriter import Rewrite
from core_compiler.ir.types import OpaqueType

#: The rule of synthetic rewrites.
UNLOGGED = "unlogged change"
#: An event that replaces more ops than this proves nothing: it would cover any change inside.
MOST_OLD = 64


@dataclass(frozen=True)
class Difference:
    """A difference between two stages that no event explains.

    ``rewrite`` is the synthetic rewrite of the region (``old`` and ``new`` ops with their values);
    None if no tensor can be compared, and then ``note`` describes the difference.
    """

    note: str
    rewrite: Rewrite | None = None


def unproven(rewrite: Rewrite) -> bool:
    """Return whether an event covers too much to prove anything."""
    return len(rewrite.old) > MOST_OLD


def differences(before: Module, after: Module, rewrites: Sequence[Rewrite]) -> list[Difference]:
    """Return the parts of ``after`` that do not follow from ``before`` by ``rewrites``.

    The list is empty if the log is complete. Kernels (functions of the level ``kernel``) are
    skipped: they are checked against the regions that they implement.
    """
    if after is before and not rewrites:
        return []
    return _Replay(before, after, rewrites).run()


def _scopes(module: Module) -> Iterator[tuple[str, object, Block]]:
    """Yield every block of ordinary ops as ``(function, scope, block)``.

    The scope of a function's body is its name; that of a region is the op's results (or its kind)
    and the region's number.
    """
    for function in module.functions.values():
        if function.level != "kernel":
            yield from _inside(function.name, function.name, function.body)


def _inside(function: str, scope: object, block: Block) -> Iterator[tuple[str, object, Block]]:
    yield function, scope, block
    for op in block.ops:
        if op.kind in MEANING_IN_REGION:
            continue
        for number, region in enumerate(op.regions):
            key = op.results or op.kind
            yield from _inside(function, (key, number), region)


class _Replay:
    def __init__(self, before: Module, after: Module, rewrites: Sequence[Rewrite]):
        self.before, self.after, self.rewrites = before, after, rewrites
        self.links: dict[Value, dict[Value, None]] = {}
        for rewrite in rewrites:
            for old, new in rewrite.values.items():
                if old is not new:
                    self.links.setdefault(old, {})[new] = None
        for old, new in _bound(before, after):
            self.links.setdefault(old, {})[new] = None
        #: The possible sources of each op: ops of the old stage and new ops of events.
        self.sources: dict[object, list[Op]] = {}
        self.scope_before: dict[Op, object] = {}
        self.function: dict[Op, str] = {}
        for function, scope, block in _scopes(before):
            for op in block.ops:
                self._source(op)
                self.scope_before[op] = scope
                self.function[op] = function
        #: Ops that events removed and added, keyed by results, because users are rebuilt.
        self.replaced: set[object] = set()
        #: The scopes that events give to their new ops and to the ops inside of these (None: that
        #: of the event).
        self.scopes_new: dict[object, set[object]] = {}
        self.added_ops: dict[object, list[Op]] = {}
        for rewrite in rewrites:
            self.replaced.update(_key(part) for op in rewrite.old for part in _parts(op))
            for op in rewrite.new:
                self.scopes_new.setdefault(_key(op), set()).add(None)
                for _, scope, block in _inside("", None, Block((), (op,), ())):
                    for part in block.ops if scope is not None else ():
                        self.scopes_new.setdefault(_key(part), set()).add(scope)
                for part in _parts(op):
                    self._source(part)
                    self.added_ops.setdefault(_key(part), []).append(part)
        self.found: list[Difference] = []
        #: Changed ops of the new stage, with the source they are compared with (None: none).
        self.changed: dict[Op, Op | None] = {}

    def _source(self, op: Op) -> None:
        self.sources.setdefault(_key(op), []).append(op)

    def run(self) -> list[Difference]:
        after_ops: dict[object, Op] = {}
        for _, scope, block in _scopes(self.after):
            for op in block.ops:
                after_ops[_key(op)] = op
                self._account(op, scope)
        vanished = [
            op
            for op in self.scope_before
            if _key(op) not in after_ops and _key(op) not in self.replaced
        ]
        self._functions()
        self._outputs()
        self._regions(vanished)
        self._logged_but_missing(after_ops)
        return self.found

    # -- single ops ------------------------------------------------------------------------------

    def _account(self, op: Op, scope: object) -> None:
        """Check that ``op`` existed before or was added by an event."""
        candidates = self.sources.get(_key(op), ())
        if _key(op) in self.replaced:
            candidates = self.added_ops.get(_key(op), ())
            if not candidates:
                self.found.append(Difference(f"an event removed {op}, but it still exists"))
                return
        if not any(c is op for c in candidates) and not any(self._same(c, op) for c in candidates):
            self.changed[op] = candidates[-1] if candidates else None
            return
        old_scope = next(
            (self.scope_before[c] for c in candidates if c in self.scope_before), scope
        )
        new_scopes = self.scopes_new.get(_key(op), ())
        if (
            old_scope != scope
            and not {None, scope}.intersection(new_scopes)
            and not self._scopes_correspond(old_scope, scope)
        ):
            self.found.append(Difference(f"{op} moved to another block"))

    def _scopes_correspond(self, old_scope: object, scope: object) -> bool:
        """Return whether the op of the region ``scope`` means the same as that of ``old_scope``."""
        if not (isinstance(old_scope, tuple) and isinstance(scope, tuple)):
            return False
        one, other = old_scope[0], scope[0]
        if not (isinstance(one, tuple) and isinstance(other, tuple)):
            return False
        # Do not compare only the first results: a loop may have stopped carrying that one.
        return any(self._justified(a, b) for a in one for b in other)

    def _same(self, source: Op, op: Op) -> bool:
        """Return whether ``op`` is ``source`` with operands that maps lead to."""
        if source.kind != op.kind or len(source.operands) != len(op.operands):
            return False
        if source.results != op.results or len(source.regions) != len(op.regions):
            return False
        if attributes_key(source.attributes.items()) != attributes_key(op.attributes.items()):
            return False
        if not all(map(self._justified, source.operands, op.operands)):
            return False
        same = self._regions_match if op.kind in MEANING_IN_REGION else self._interfaces_match
        return all(map(same, source.regions, op.regions))

    def _interfaces_match(self, old: Block, new: Block) -> bool:
        """Return whether two regions have equal interfaces; their ops are checked one by one."""
        return (
            len(old.arguments) == len(new.arguments)
            and len(old.outputs) == len(new.outputs)
            and all(map(self._justified, old.arguments, new.arguments))
            and all(map(self._justified, old.outputs, new.outputs))
        )

    def _regions_match(self, old: Block, new: Block) -> bool:
        """Return whether two regions that define an op's meaning have equal ops and data flow."""
        if old is new:
            return True
        names: dict[Value, Value] = {}

        def enter(ours: Iterable[Value], theirs: Iterable[Value]) -> bool:
            one, other = tuple(ours), tuple(theirs)
            names.update(zip(one, other, strict=False))
            return len(one) == len(other) and all(
                a.type == b.type for a, b in zip(one, other, strict=True)
            )

        def reads(ours: Sequence[Value], theirs: Sequence[Value]) -> bool:
            return len(ours) == len(theirs) and all(
                names.get(a, a) is b or (a not in names and self._justified(a, b))
                for a, b in zip(ours, theirs, strict=True)
            )

        def blocks(one: Block, other: Block) -> bool:
            return (
                enter(one.arguments, other.arguments)
                and len(one.ops) == len(other.ops)
                and all(map(ops, one.ops, other.ops))
                and reads(one.outputs, other.outputs)
            )

        def ops(one: Op, other: Op) -> bool:
            key, theirs = (attributes_key(o.attributes.items()) for o in (one, other))
            return (
                one.kind == other.kind
                and key == theirs
                and reads(one.operands, other.operands)
                and len(one.regions) == len(other.regions)
                and all(map(blocks, one.regions, other.regions))
                and enter(one.results, other.results)
            )

        return blocks(old, new)

    def _justified(self, old: Value, new: Value) -> bool:
        """Return whether maps of events lead from ``old`` to ``new``."""
        if old is new:
            return True
        seen, stack = {old}, [old]
        while stack:
            for value in self.links.get(stack.pop(), ()):
                if value is new:
                    return True
                if value not in seen:
                    seen.add(value)
                    stack.append(value)
        return False

    # -- whole functions -------------------------------------------------------------------------

    def _functions(self) -> None:
        old, new = self.before, self.after
        plain = {n: f for n, f in new.functions.items() if f.level != "kernel"}
        for name, function in plain.items():
            was = old.functions.get(name)
            if was is None:
                continue  # a function without calls; changed calls are other ops
            if len(was.arguments) != len(function.arguments) or not all(
                a is b or self._justified(a, b) or _binds(a, b)
                for a, b in zip(was.arguments, function.arguments, strict=True)
            ):
                self.found.append(Difference(f"the arguments of @{name} changed"))
            self._attributes(was, function)
        if old.symbols != new.symbols:
            self.found.append(Difference(f"symbols {old.symbols} became {new.symbols}"))

    def _attributes(self, old: Function, function: Function) -> None:
        """Compare the facts of a function; at another level only those of its results are kept."""
        names: Iterable[str] = {**old.attributes, **function.attributes}
        if old.level != function.level:
            names = ("aliases", "results")
        recorded = {
            k: v
            for r in self.rewrites
            if r.function == function.name
            for k, v in r.attributes.items()
        }
        for key in names:
            one, other = old.attributes.get(key), function.attributes.get(key)
            if one != other and not (key in recorded and recorded[key] == other):
                note = f"the attribute {key} of @{function.name} changed"
                self.found.append(Difference(note))

    def _outputs(self) -> None:
        """Compare results by position; added or removed results are checked with the outputs."""
        self.outputs: list[tuple[str, Value, Value]] = []
        for name, function in self.after.functions.items():
            was = self.before.functions.get(name)
            if function.level == "kernel" or was is None:
                continue
            if len(was.outputs) != len(function.outputs):
                continue
            for old, new in zip(was.outputs, function.outputs, strict=True):
                if not self._justified(old, new):
                    self.outputs.append((name, old, new))

    # -- remaining differences -------------------------------------------------------------------

    def _regions(self, vanished: Sequence[Op]) -> None:
        """Create the synthetic rewrites.

        They cover each changed op that defines a value of the old stage, and each output that is
        another value, with the ops on both sides that lead to it.
        """
        removed = {v: op for op in vanished for v in op.results}
        added = {v: op for op, source in self.changed.items() if source is None for v in op.results}
        covered: set[Op] = set()
        for op, source in self.changed.items():
            if source is None:
                continue
            values = {v: v for v in op.results}
            old, new = _upstream([source], removed), _upstream([op], added)
            covered.update(old, new)
            self._add(source, op, old, new, values)
        for name, one, other in self.outputs:
            old = _upstream([removed[one]], removed) if one in removed else []
            new = _upstream([added[other]], added) if other in added else []
            covered.update(old, new)
            rewrite = Rewrite(UNLOGGED, "", tuple(old), tuple(new), {one: other}, name)
            note = f"a result of @{name} changed ({one} became {other})"
            self.found.append(Difference(note, rewrite))
        for op in (*vanished, *added.values()):
            if op in covered:
                continue
            what = "is gone" if op in self.scope_before else "was added"
            if op.results:
                before, after = ((op,), ()) if op in self.scope_before else ((), (op,))
                where = self.function.get(op, "main")
                rewrite = Rewrite(UNLOGGED, "", before, after, {}, where)
                self.found.append(Difference(f"{op} {what}", rewrite))
        for op in (*vanished, *(o for o, s in self.changed.items() if s is None)):
            if not op.results:  # an op with memory effects only, checked by executing the stage
                what = "is gone" if op in self.scope_before else "was added"
                self.found.append(Difference(f"{op} {what}"))

    def _add(self, source: Op, op: Op, old: list[Op], new: list[Op], values: Mapping) -> None:
        name = self.function.get(source, "main")
        rewrite = Rewrite(UNLOGGED, "", tuple(old), tuple(new), values, name)
        self.found.append(Difference(f"{source} became {op}{_how(source, op)}", rewrite))

    def _logged_but_missing(self, after_ops: Mapping[object, Op]) -> None:
        """Find new ops of events that are neither present nor replaced again."""
        inside = {_key(part) for op in after_ops.values() for part in _parts(op) if part is not op}
        for rewrite in self.rewrites:
            for op in rewrite.new:
                key = _key(op)
                if key in after_ops or key in self.replaced or key in inside:
                    continue
                note = f"{rewrite.rule} logged the new op {op}, which does not exist"
                self.found.append(Difference(note))


def _key(op: Op) -> object:
    """Return the identity of an op when its operands are replaced: its results (else itself)."""
    return op.results[0] if op.results else op


def _parts(op: Op) -> Iterator[Op]:
    """Yield an op and those of its regions, except regions that define an op's meaning."""
    yield op
    if op.kind not in MEANING_IN_REGION:
        for region in op.regions:
            for inner in region.ops:
                yield from _parts(inner)


def _upstream(ops: Iterable[Op], makers: Mapping[Value, Op]) -> list[Op]:
    """Return ``ops`` and the ops of ``makers`` that they need, in an order for evaluation."""
    done: dict[Op, None] = {}

    def visit(op: Op) -> None:
        stack = [(op, iter(op.uses()))]
        entered = {op}
        while stack:
            current, uses = stack[-1]
            for value in uses:
                needed = makers.get(value)
                if needed is not None and needed not in done and needed not in entered:
                    entered.add(needed)
                    stack.append((needed, iter(needed.uses())))
                    break
            else:
                stack.pop()
                done[current] = None

    for op in ops:
        if op not in done:
            visit(op)
    return list(done)


def _bound(before: Module, after: Module) -> Iterator[tuple[Value, Value]]:
    """Yield arguments with a counterpart at the same position: they are still the caller's."""
    for name, function in after.functions.items():
        was = before.functions.get(name)
        if was is None:
            continue
        for old, new in zip(was.arguments, function.arguments, strict=False):
            if new not in was.arguments and _binds(old, new):
                yield old, new


def _binds(old: Value, new: Value) -> bool:
    """Return whether an argument is the old one with open sizes bound.

    Its type may also change if it was a frontend's own (of unknown rank, optional).
    """
    one, other = getattr(old.type, "shape", None), getattr(new.type, "shape", None)
    if other is None or old.name != new.name:
        return False
    return isinstance(old.type, OpaqueType) if one is None else len(one) == len(other)


def _how(old: Op, new: Op) -> str:
    """Describe in a few words how an op changed."""
    names = [n for n in {**old.attributes, **new.attributes} if old.get(n) != new.get(n)]
    if old.kind == new.kind and names:
        return f" ({', '.join(f'{n}: {old.get(n)} became {new.get(n)}' for n in names[:3])})"
    if old.kind == new.kind and old.operands != new.operands:
        return " (it reads other values)"
    return ""
