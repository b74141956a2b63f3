"""Update in place: write the next state where the old one is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Module, Op, Value
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ir.target import (
    ALLOC,
    COPY,
    INPUT,
    LAUNCH,
    OUTPUT,
    Input,
    Launch,
    Output,
    buffers_written,
)
from core_compiler.lowering.in_place import may_share
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.find_lifetimes import loop_extents, memory_owners
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.training.graph.roles import Roles


@dataclass(frozen=True)
class UpdateInPlace(Pass):
    """Let the next value of a parameter, or of any state, reuse the memory of the old one.

    This is possible if one launch writes it after all other uses of the old value, after the loss
    is known (an iteration whose loss is not finite must leave the state unchanged) and after all
    exchanges between shards, and if its kernel reads each element before it overwrites it. Other
    state has two arrays, which alternate.
    """

    half = "implementation"
    requires = frozenset({"schedules", "plan"})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        rewriter = context.rewriter(module.main.body)
        state = _State(module)
        pairs = module.main.attributes.get("aliases", ())
        done = 0
        with suppress(RewriteLimit):
            for result, argument in pairs:
                op = state.outputs[result]
                if state.can_update(result, argument):
                    new = op.with_(attributes={**op.attributes, "takes": argument}, origin=None)
                    rewriter.replace(
                        op, new, rule="update in place", note=f"{op.operands[0].type.bytes:,} bytes"
                    )
                    done += 1
        context.note("note", f"{done} of {len(pairs)} parts of the state are updated in place")
        return module.with_main(rewriter.commit())


class _State:
    """The readers and writers of the state that the step carries on."""

    def __init__(self, module: Module):
        self.module, self.ops = module, module.main.body.ops
        self.roots = memory_owners(self.ops)
        self.outputs = {Output(op).index: op for op in self.ops if op.kind == OUTPUT}
        self.inputs = {Input(op).index: op.result for op in self.ops if op.kind == INPUT}
        self.loops = loop_extents(self.ops)
        self.accesses: dict[Value, list[int]] = {}
        for at, op in enumerate(self.ops):
            if op.kind in (LAUNCH, COPY):
                for root in {self._root(v) for v in op.operands}:
                    self.accesses.setdefault(root, []).append(at)
        row = Roles.of(module.main).results.index(("loss", -1))
        known = self.accesses.get(self._output(row), [])
        exchanges = [i for i, op in enumerate(self.ops) if op.kind == LAUNCH and is_exchange(op)]
        #: The launch after which nothing can fail any more.
        self.commit_point = max([self._known_at(known) if known else len(self.ops), *exchanges])
        self.shared: dict[tuple[str, int, int], bool] = {}

    def _known_at(self, accesses: Sequence[int]) -> int:
        """Return when the value in a memory that these ops touch is known.

        It is known after the first of them, but for a value that a loop carries with the first
        launch after the loop.
        """
        ends = [end for begin, end in self.loops if any(begin < i < end for i in accesses)]
        if not ends:
            return accesses[0]
        rest = range(max(ends), len(self.ops))
        return next((i for i in rest if self.ops[i].kind in (LAUNCH, COPY)), len(self.ops))

    def _root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def _output(self, result: int) -> Value:
        return self._root(self.outputs[result].operands[0])

    def can_update(self, result: int, argument: int) -> bool:
        target, old = self._output(result), self.inputs[argument]
        writers = [i for i in self.accesses.get(target, ()) if target in self._written(self.ops[i])]
        if len(writers) != 1 or not self._is_allocation(target):
            return False
        (at,) = writers
        op = self.ops[at]
        if at <= self.commit_point or any(begin < at < end for begin, end in self.loops):
            return False
        if self.accesses[target][0] < at or any(i > at for i in self.accesses.get(old, ())):
            return False
        if old not in {self._root(v) for v in op.operands}:
            return True
        return op.kind == COPY or self._kernel_can_overwrite(op, target, old)

    def _is_allocation(self, target: Value) -> bool:
        """Return whether the memory is an allocation of its own."""
        return any(op.kind == ALLOC and op.result is target for op in self.ops)

    def _written(self, op: Op) -> set[Value]:
        return {self._root(v) for v in buffers_written(op)}

    def _kernel_can_overwrite(self, op: Op, target: Value, old: Value) -> bool:
        """Return whether the kernel reads each element of ``old`` before it overwrites it."""
        launch = Launch.of(op)
        function, values = self.module.functions[launch.kernel], launch.buffers
        places = {v: [i for i, w in enumerate(values) if self._root(w) is v] for v in (target, old)}
        if any(len(found) != 1 for found in places.values()):
            return False
        (written,), (read,) = places[target], places[old]
        a, b = values[written].type, values[read].type
        if (a.shape, a.strides, a.dtype) != (b.shape, b.strides, b.dtype):
            return False
        key = launch.kernel, read, written
        if key not in self.shared:
            names = function.arguments
            self.shared[key] = may_share(
                function, names[read], names[written], self.module.functions
            )
        return self.shared[key]
