"""Comparison of an import with its framework, value by value, to find ops imported wrongly.

The framework runs the model's graph node by node, and the results of each node are judged in two
ways.

- *Alone*: our ops for the node, on the operands that the framework gave its own node.  An error
  that only passes through is not attributed to a node.  The first node that differs alone is the
  culprit.
- *As a whole*: the value of the import, evaluated by the reference from the model's inputs.  These
  differences accumulate along the graph; the results of the model are judged by them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np

from core_compiler.debug.adversarial_nodes import Adversary
from core_compiler.debug.alone import (
    KEPT,
    ComputedTensor,
    IsolatedOps,
    as_wide,
    cut,
    form,
    nth,
    random_values,
)
from core_compiler.debug.bits import same_bits
from core_compiler.debug.draws import distribution_difference
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.metric import Distance, distance, largest
from core_compiler.debug.verdict import Judgement, judge, worst
from core_compiler.debug.whole import Whole
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.events import FrameworkRecord
from core_compiler.ir.framework import InF64, Iteration, Nodes
from core_compiler.ir.text import print_op


@dataclass(frozen=True)
class FirstDifference:
    """The first node that differs.

    ``node`` of the framework, ``op`` of ours as text, ``line`` of the model ("" if unknown),
    ``alone`` (on the framework's own operands, else as a whole), and the errors of the node's
    operands (name, error).
    """

    node: str
    op: str
    line: str
    alone: bool
    judgement: Judgement
    inputs: tuple[tuple[str, float], ...] = ()


@dataclass(eq=False)
class Compared:
    """The result of a comparison; ``records`` are in the framework's order.

    ``left_out`` values could not be compared: they are not tensors, have another form in the
    framework, or are random.  ``counts`` are the numbers of verdicts on nodes alone.  ``tried`` is
    the number of kinds of nodes that were also compared on adversarial values.
    """

    records: list[FrameworkRecord] = field(default_factory=list)
    left_out: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    beyond: FirstDifference | None = None
    tried: int = 0

    @property
    def verdict(self) -> str:
        """Return the verdict on all values together."""
        return "differs" if self.beyond is not None else worst(self.counts)


def compare(
    module: Module,
    inputs: Sequence[np.ndarray],
    nodes: Nodes,
    own: int,
    imported: Module | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compared:
    """Compare the values of ``module``, an import, with those of the framework.

    ``inputs`` are arrays for main's arguments, the first ``own`` of them the model's own inputs
    (the others are its state).  ``nodes`` name values of ``imported``: by default ``module``, else
    another import of the same model with the same ops in the same order.  ``progress`` is called
    with the numbers of nodes done and in total.
    """
    all_values = nodes.values
    if imported is not None:
        all_values = _counterparts(all_values, imported, module)
    once = _once(all_values)
    sized = {
        name: [() if v is None else nodes.sized.get(v, ()) for v in values]
        for name, values in nodes.values.items()
    }
    comparison = _Comparison(module, inputs, nodes, all_values, once, sized)
    adversary = Adversary(module, inputs, nodes, all_values, own)
    count = 0

    def on_node(
        name: str,
        arrays: Sequence[np.ndarray | None],
        in_f64: InF64,
        iterations: Sequence[Iteration] = (),
        /,
    ) -> list[bool]:
        nonlocal count
        progress(count, len(all_values))
        count += 1
        if name not in all_values:
            return [False] * len(arrays)
        adversary.keep(name, arrays)
        return comparison.node(name, all_values[name], once[name], arrays, in_f64, iterations)

    made = nodes.run([np.array(a) for a in inputs[:own]], on_node)  # it may write its inputs
    outputs = (module if imported is None else imported).main.outputs
    comparison.results(made, {i: nodes.sized.get(outputs[i], ()) for i in made if i < len(outputs)})
    if comparison.found.beyond is None:
        comparison.found.tried = adversary.run(
            lambda name, made, judged: comparison.judged(name, made.value, made, judged)
        )
    return comparison.found


class _Comparison:
    """A comparison of an import with its framework, node by node."""

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        nodes: Nodes,
        values: Mapping[str, Sequence[Value | None]],
        once: Mapping[str, Sequence[Value | None]],
        sized: Mapping[str, Sequence[Collection[int]]],
    ):
        self.found, self.sized = Compared(), sized
        self.module, self.inputs, self.framework = module, inputs, nodes.framework
        self.whole = _Ours(module, inputs, once)
        self.isolated = IsolatedOps(module, inputs, values)
        self._constants, self._open_ties = nodes.constants, nodes.open_ties
        self._declared, self._parts = nodes.declared, nodes.parts
        self._errors: dict[Value, tuple[str, float]] = {}
        self._drawn = random_values(module)
        #: The model's results that nodes compute: their names and tensors.
        self._results: dict[Value, tuple[str, np.ndarray]] = {}

    def node(
        self,
        name: str,
        values: Sequence[Value | None],
        once: Sequence[Value | None],
        arrays: Sequence[np.ndarray | None],
        in_f64: InF64,
        iterations: Sequence[Iteration],
    ) -> list[bool]:
        """Judge the results of a node; return for each whether evaluation continues from it."""
        wide = cache(in_f64)
        known = {v: self.isolated.make(v) for v in values if v is not None}
        by_step = self._by_step(values, known, iterations)
        # Some torch kernels return narrower results than their nodes declare: they are judged as
        # they are.
        widened_arrays = [
            as_wide(a, known[v]) if self._declared and v is not None else a
            for v, a in zip(values, arrays, strict=False)
        ]
        array_of = dict(zip(values, widened_arrays, strict=False))
        rows = zip(values, once, widened_arrays, arrays, strict=False)
        for index, (value, first, theirs, original) in enumerate(rows):
            if value is None:
                continue
            whole_value = self.whole.take(first) if first is not None else None
            made = known[value]
            drawn = value in self._drawn
            draws = drawn and made is not None and self.isolated.draws(made)
            if made is None or theirs is None or original is None or draws:
                self.found.left_out += 1
                self.found.counts["not_compared"] += 1
                if draws and made is not None and theirs is not None:
                    self._judge_random_values(name, value, made, theirs)
                continue
            if form(made.array) != form(theirs):
                axes = self.sized[name][index]
                if axes and _has_room(made.array, theirs, axes):
                    if (
                        whole_value is not None
                        and not drawn
                        and _has_room(whole_value, theirs, axes)
                    ):
                        self._record(value, name, cut(whole_value, theirs.shape), theirs)
                    self._judge(name, value, made, theirs, partial(nth, wide, index))
                else:
                    self.judged(name, value, made, _other_form(made.array, theirs))
                continue
            if whole_value is not None and not drawn:
                other = array_of.get(self._parts[value]) if value in self._parts else None
                self._record(value, name, whole_value, theirs, other)
            if by_step is None:
                self._judge(name, value, made, original, partial(nth, wide, index))
            else:
                self.judged(name, value, made, by_step)
        return [
            value is not None and self.isolated.record(value, known[value], theirs)
            for value, theirs in zip(values, widened_arrays, strict=False)
        ]

    def _by_step(
        self,
        values: Sequence[Value | None],
        known: Mapping[Value, ComputedTensor | None],
        iterations: Sequence[Iteration],
    ) -> Judgement | None:
        """Return the verdict on a loop judged iteration by iteration, or None.

        Each iteration is judged on the framework's operands, as the trip count may depend on
        rounding. Returns None, so that the loop is judged by its results, if it is not a loop of
        ours that starts with the framework's values and returns what it carries in the same order.
        """
        found = [known.get(v) if v is not None else None for v in values]
        loop = found[0] if found else None
        if not iterations or loop is None or loop.op is None or loop.op.kind != "core.while":
            return None
        initial = [loop.uses[v].array for v in loop.op.operands]
        if list(values) != list(loop.op.results) or not all(
            map(same_bits, initial, iterations[0].operands)
        ):
            return None
        judged = []
        for step in iterations:
            part = "condition" if step.region == 0 else "body"
            prefix = f"{part} of the loop, iteration {step.number}: "
            judged += [
                replace(j, note=j.note and prefix + j.note)
                for j in self.isolated.iteration(loop, step)
            ]
        verdict = worst(j.verdict for j in judged)
        return next(j for j in judged if j.verdict == verdict)

    def _judge_random_values(
        self, node: str, value: Value, made: ComputedTensor, theirs: np.ndarray
    ) -> None:
        """Judge random numbers by their form and distribution."""
        if form(made.array) != form(theirs):
            self.judged(node, value, made, _other_form(made.array, theirs))
            return
        operands = [k.array for k in self.isolated.given(made) if k.array.shape == theirs.shape]
        floats = [a for a in operands if a.dtype.kind not in "biu"]
        difference = distribution_difference(
            made.array, theirs, floats[0] if len(floats) == 1 else None
        )
        if difference:
            off = Distance(math.inf, ulps=None, note=difference)
            self.judged(node, value, made, Judgement("differs", off, note=difference))

    def _record(
        self,
        value: Value,
        node: str,
        ours: np.ndarray,
        theirs: np.ndarray,
        other: np.ndarray | None = None,
    ) -> None:
        """Record a verdict; ``other`` is the other part of the framework's complex tensor."""
        whole_scale = 0.0 if other is None else largest([other], np.zeros(other.shape, bool))
        record = _record(value, self.framework, node, ours, theirs, whole_scale)
        self.found.records.append(record)
        self._errors[value] = value.name or node, record.error
        if value in self.module.main.outputs:
            self._results[value] = node, np.array(theirs)

    def _judge(
        self,
        node: str,
        value: Value,
        made: ComputedTensor,
        theirs: np.ndarray,
        wide: Callable[[], np.ndarray | None],
    ) -> None:
        constants, open_ties = self._constants.get(node, 0.0), node in self._open_ties
        self.judged(
            node, value, made, self.isolated.judge(made, theirs, wide, constants, open_ties)
        )

    def judged(self, node: str, value: Value, made: ComputedTensor, judged: Judgement) -> None:
        """Count a verdict on a node alone, and keep the first that differs."""
        self.found.counts[judged.verdict] += 1
        if judged.verdict == "differs" and self.found.beyond is None:
            op = made.op if made.op is not None else self.isolated.makers.get(value)
            inputs = tuple(
                self._errors.get(v, (v.name or "an input", 0.0))
                for v in self.isolated.boundary(made)
            )
            self.found.beyond = FirstDifference(node, *describe_op(op), True, judged, inputs)

    def results(self, made: Mapping[int, np.ndarray], sized: Mapping[int, Collection[int]]) -> None:
        """Judge the model's results and final state as a whole if every node is right alone.

        ``made`` holds them by position.
        """
        if self.found.beyond is not None:
            return
        whole, outputs = Whole(self.module, self.inputs), self.module.main.outputs
        for index, theirs in sorted(made.items()):
            if index >= len(outputs):
                judged = Judgement("differs", note=f"the import has {len(outputs)} results")
                self.found.beyond = FirstDifference(
                    result_name(self.module, index), "", "", False, judged
                )
                return
            value = outputs[index]
            ours = None if value in self._drawn else self.whole.take(value)
            if ours is None:
                continue
            node, node_array = self._results.get(value) or ("", None)
            if form(ours) == form(theirs) or _has_room(ours, theirs, sized.get(index, ())):
                # It is not the tensor of that node, so the two have not been compared yet.
                same = (
                    node_array is not None
                    and node_array.shape == theirs.shape
                    and same_bits(node_array, theirs)
                )
                judged = self._result(whole, index, ours, theirs, same)
                node = node if same else ""
            else:
                judged = _other_form(ours, theirs)
            if judged.verdict == "differs":
                op = self.isolated.makers.get(value)
                name = node or result_name(self.module, index)
                self.found.beyond = FirstDifference(name, *describe_op(op), False, judged)
                return

    def _result(
        self, whole: Whole, index: int, ours: np.ndarray, theirs: np.ndarray, same: bool
    ) -> Judgement:
        """Judge a result.

        ``same``: the framework's tensor is that of the node that ours is of, which is right alone.
        """

        def counted(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            return [cut(a, theirs.shape) if i == index else a for i, a in enumerate(arrays)]

        ours = cut(ours, theirs.shape)
        if same and theirs.dtype.kind not in "biu":
            # If it overflowed and ours did not, its f64 has shown which is right.
            with np.errstate(invalid="ignore"):
                theirs = np.where(~np.isfinite(theirs) & np.isfinite(ours), ours, theirs)
        judged = judge(theirs, ours, whole.evidence(index, same_algebra=same, counted=counted))
        if same and judged.verdict == "differs" and theirs.dtype.kind in "biu":
            # It is right on the framework's operands, so earlier rounding explains the difference.
            return replace(judged, verdict="within")
        return judged


def result_name(module: Module, index: int) -> str:
    """Return the name of a result of main: the state's if it becomes an argument."""
    arguments = module.main.arguments
    for result, argument in module.main.attributes.get("aliases", ()):
        if result == index:
            return f"{arguments[argument].name}, the state after a call"
    return f"result {index} of the model"


def describe_op(op: Op | None) -> tuple[str, str]:
    """Return an op as text, and its line of the model (``file:line``; "" if unknown)."""
    if op is None:
        return "", ""
    nodes = op.origin.nodes() if op.origin is not None else ()
    return print_op(op), next((f"{n.file}:{n.line}" for n in nodes if n.file), "")


def _record(
    value: Value,
    framework: str,
    node: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    whole_scale: float,
) -> FrameworkRecord:
    if same_bits(theirs, ours):
        return FrameworkRecord(value, framework, node)
    off = distance(theirs, ours, theirs.dtype, whole_scale=whole_scale)
    return FrameworkRecord(
        value, framework, node, False, off.relative, off.index, off.want, off.got
    )


def _once(values: Mapping[str, Sequence[Value | None]]) -> dict[str, list[Value | None]]:
    """Map each node to its values, keeping each value at the first node that has it.

    Later nodes only pass it on.
    """
    seen: set[Value] = set()
    made = {}
    for name, found in values.items():
        made[name] = [None if v in seen else v for v in found]
        seen.update(v for v in found if v is not None)
    return made


def _has_room(ours: np.ndarray, theirs: np.ndarray, axes: Collection[int]) -> bool:
    """Return whether ours is larger, if at all, only along ``axes`` of data-dependent size."""
    return (
        ours.dtype == theirs.dtype
        and ours.ndim == theirs.ndim
        and all(
            a >= b if axis in axes else a == b
            for axis, (a, b) in enumerate(zip(ours.shape, theirs.shape, strict=True))
        )
    )


def _other_form(ours: np.ndarray, theirs: np.ndarray) -> Judgement:
    note = f"it is {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
    return Judgement("differs", Distance(math.inf, ulps=None, note=note), note=note)


def _counterparts(
    values: Mapping[str, Sequence[Value | None]], imported: Module, module: Module
) -> dict[str, list[Value | None]]:
    """Return the values of ``module`` at the positions of those of ``imported``."""
    ops, imported_ops = module.main.body.ops, imported.main.body.ops
    same = len(ops) == len(imported_ops) and all(
        a.kind == b.kind and [r.type for r in a.results] == [r.type for r in b.results]
        for a, b in zip(ops, imported_ops, strict=True)
    )
    if not same:
        raise ValueError("the two imports are of different models")
    pairs = zip(
        (v for op in imported_ops for v in op.results),
        (v for op in ops for v in op.results),
        strict=True,
    )
    counterpart = dict(pairs) | dict(
        zip(imported.main.arguments, module.main.arguments, strict=True)
    )
    return {
        name: [None if v is None else counterpart.get(v) for v in found]
        for name, found in values.items()
    }


class _Ours:
    """The import, evaluated lazily; a value is dropped once no remaining op or node reads it."""

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        wanted: Mapping[str, Sequence[Value | None]],
    ):
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        self._ops = iter(module.main.body.ops)
        self._makes = {v for op in module.main.body.ops for v in op.results}
        self._known = dict(zip(module.main.arguments, inputs, strict=True))
        self._readers = Counter(v for op in module.main.body.ops for v in set(op.uses()))
        self._readers.update(v for values in wanted.values() for v in values if v is not None)
        self._readers.update(module.main.outputs)

    def take(self, value: Value) -> np.ndarray | None:
        """Return the tensor of a value, or None if it is not a tensor of ``main``."""
        while value not in self._known and value in self._makes:
            op = next(self._ops, None)
            if op is None:
                return None  # a node that the framework runs twice
            results = self._evaluator.op(op, [self._known[v] for v in op.operands], self._known)
            self._known.update(zip(op.results, results, strict=True))
            for read in set(op.uses()):
                self._read(read)
            for made in op.results:
                if not self._readers[made]:
                    self._known.pop(made, None)
        found = self._known.get(value)
        self._read(value)
        return np.asarray(found) if isinstance(found, np.ndarray | np.generic) else None

    def _read(self, value: Value) -> None:
        self._readers[value] -= 1
        if self._readers[value] <= 0:
            self._known.pop(value, None)
