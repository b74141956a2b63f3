"""Order launches: run launches that release memory as early as possible."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Block, Function, Module, Op, Value
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ir.target import LAUNCH
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.layouts import is_free_view
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.training.graph.roles import Roles

#: Largest number of bytes that a launch of only a few values reads and writes.
TINY = 256


@dataclass(frozen=True)
class OrderLaunches(Pass):
    """Move up launches that release more memory than they take, such as updates of parameters.

    Launches that compute only a few values come as early as possible, because updates wait for some
    of them (the rate). The next value of an argument is computed after all other uses of the
    argument (unless they depend on it) and after the loss, so that it may reuse the argument's
    memory. Launches that shards execute together stay side by side.
    """

    half = "implementation"
    requires = frozenset({"kernels", "values"})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        body = module.main.body
        rewriter = context.rewriter(body)
        unscheduled = dict.fromkeys(body.ops)  # in the old order, without those already scheduled
        with suppress(RewriteLimit):
            for op, freed in _Order(module.main).ops():
                first = next(iter(unscheduled))
                if op is not first:
                    rewriter.replace(
                        op,
                        op.with_(),
                        rule="launch earlier",
                        at=first,
                        note=f"frees {freed:,} bytes" if freed else "",
                    )
                del unscheduled[op]
        return module.with_main(rewriter.commit())


def memory_roots(body: Block) -> dict[Value, Value]:
    """Return the value whose memory each value of a block of launches uses (through views)."""
    roots: dict[Value, Value] = {}
    for op in body.ops:
        if is_free_view(op):
            roots[op.result] = roots.get(op.operands[0], op.operands[0])
    return roots


@dataclass
class _Order:
    """Visit a function's ops in their new launch order."""

    function: Function
    #: Op -> ops that come after it, and the number of ops it still waits for.
    followers: dict[Op, dict[Op, None]] = field(default_factory=dict)
    wait_counts: dict[Op, int] = field(default_factory=dict)
    #: Memory of temporaries -> the launches that have yet to read it.
    readers: dict[Value, set[Op]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = self.function.body
        self.position = {op: i for i, op in enumerate(body.ops)}
        self.roots = memory_roots(body)
        producers = body.producers()
        self.wait_counts = dict.fromkeys(body.ops, 0)
        self.followers = {op: {} for op in body.ops}
        for op in body.ops:
            for value in op.uses():
                if value in producers:
                    self._order_after(producers[value], op)
        results = {self._root(v) for v in body.outputs}
        self.readers = {
            v: set() for op in body.ops if op.kind == LAUNCH for v in op.results if v not in results
        }
        for op in body.ops:
            for root in self._temporaries_read(op):
                self.readers[root].add(op)
        self._delay_updates(producers)

    def _order_after(self, first: Op, later_op: Op) -> None:
        if later_op not in self.followers[first]:
            self.followers[first][later_op] = None
            self.wait_counts[later_op] += 1

    def _root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def _temporaries_read(self, op: Op) -> set[Value]:
        """Return the temporaries that a launch reads; views read nothing."""
        if is_free_view(op):
            return set()
        return {self._root(v) for v in op.uses()} & self.readers.keys()

    def _delay_updates(self, producers: dict[Value, Op]) -> None:
        """Let updates wait for the argument's readers, the loss and the exchanges between shards.

        An update is an op that computes the next value of an argument.
        """
        body, roles = self.function.body, Roles.of(self.function)
        loss = producers.get(self._root(body.outputs[roles.results.index(("loss", -1))]))
        exchanges = [op for op in body.ops if is_exchange(op)]
        users = body.users()
        for result, argument in self.function.attributes.get("aliases", ()):
            update = producers.get(self._root(body.outputs[result]))
            if update is None:
                continue
            later = self._after(update)
            reads = [op for v in self._views(body.arguments[argument]) for op in users.get(v, ())]
            for op in (*reads, *exchanges, *([] if loss is None else [loss])):
                if op not in later and not is_free_view(op):
                    self._order_after(op, update)

    def _views(self, value: Value) -> list[Value]:
        return [value, *(v for v, root in self.roots.items() if root is value)]

    def _after(self, op: Op) -> set[Op]:
        """Return ``op`` and all ops that must come after it."""
        found, work = {op}, [op]
        while work:
            for follower in self.followers[work.pop()]:
                if follower not in found:
                    found.add(follower)
                    work.append(follower)
        return found

    def ops(self) -> Iterator[tuple[Op, int]]:
        """Yield the ops in their new order, each with the bytes that its move releases."""
        ops = self.function.body.ops
        ready = [self.position[op] for op in ops if not self.wait_counts[op]]
        heapq.heapify(ready)
        early: Op | None = None
        while ready:
            at = heapq.heappop(ready) if early is None else self.position[early]
            if early is not None:
                ready.remove(at)
                heapq.heapify(ready)
            op = ops[at]
            yield op, max(0, -self._growth(op)) if early is not None else 0
            for root in self._temporaries_read(op):
                self.readers[root].discard(op)
            for follower in self.followers[op]:
                self.wait_counts[follower] -= 1
                if not self.wait_counts[follower]:
                    heapq.heappush(ready, self.position[follower])
            together = is_exchange(op) and ready and is_exchange(ops[ready[0]])
            early = None if together else self._find_early([ops[i] for i in sorted(ready)])

    def _find_early(self, ready: list[Op]) -> Op | None:
        """Return the first ready op that releases memory or is tiny."""
        return next((op for op in ready if self._growth(op) < 0 or self._is_tiny(op)), None)

    def _is_tiny(self, op: Op) -> bool:
        bytes_ = sum(v.type.bytes for v in (*op.uses(), *op.results))
        return op.kind == LAUNCH and not is_exchange(op) and bytes_ <= TINY

    def _growth(self, op: Op) -> int:
        """Return by how many bytes a launch increases the memory in use."""
        if op.kind != LAUNCH or is_exchange(op):
            return 0
        made = sum(v.type.bytes for v in op.results if v in self.readers)
        last = [root for root in self._temporaries_read(op) if self.readers[root] == {op}]
        return made - sum(root.type.bytes for root in last)
