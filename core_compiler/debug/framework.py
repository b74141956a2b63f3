"""Each value of an import against the framework's own: which op of the import is not what the model
says?

The framework runs the model's graph node by node, and what each node made is judged in two ways.

- *Alone*: our ops for the node, on the operands that the framework gave its own.  An error that
  only passes through is not blamed on a node.  The first node that differs alone is the culprit.
- *As a whole*: the value that the import has, evaluated by the reference from the model's inputs.
  These differences add up along the graph; the results of the model are judged by them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from core_compiler.debug.check import SEEDS, same_bits
from core_compiler.debug.draws import unlike
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.metric import Distance, distance, epsilon
from core_compiler.debug.verdict import (
    EACH_ULPS,
    MARGIN,
    VAGUE,
    Evidence,
    Judgement,
    judge,
    worst,
)
from core_compiler.debug.wide import Wide, nudged, widened
from core_compiler.errors import InternalError
from core_compiler.ir import Block, Module, Op, Value
from core_compiler.ir.events import FrameworkRecord
from core_compiler.ir.framework import InF64, Nodes
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.text import print_op
from core_compiler.ir.types import is_sized
from core_compiler.ops.base import TypeRuleError, cost, definition
from core_compiler.ops.builder import decomposed
from core_compiler.passes.base import CONTROL_FLOW

#: Bytes of results that are kept for ops that are the same on the same arrays.
KEPT = 1 << 26
#: Kinds of nodes whose constants are the model's own; those of other nodes belong to a formula.
_STORED = frozenset({
    "parameter", "buffer", "constant_tensor", "frozen", "constant", "initializer", "Constant",
})  # fmt: skip
#: Ops that give positions in an operand.
_POSITIONS = frozenset({"core.topk", "core.argsort", "core.argmax", "core.argmin"})
#: A number with no more binary digits than this is exact in a formula: 1/2, 3, 0.044 is not.
_DIGITS = 8


@dataclass(frozen=True)
class Beyond:
    """The first node that differs: ``node`` of the framework, ``op`` of ours as text, ``line`` of
    the model ("" where unknown), ``alone`` (on the framework's own operands, else as a whole), and
    how far the operands of the node were off (name, error)."""

    node: str
    op: str
    line: str
    alone: bool
    judgement: Judgement
    inputs: tuple[tuple[str, float], ...] = ()


@dataclass(eq=False)
class Compared:
    """``records`` in the framework's order; ``left_out`` values could not be compared: they are no
    tensors, have another form there, or are random.  ``counts`` of verdicts on nodes alone."""

    records: list[FrameworkRecord] = field(default_factory=list)
    left_out: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    beyond: Beyond | None = None

    @property
    def verdict(self) -> str:
        """The verdict on all values together."""
        return "differs" if self.beyond is not None else worst(self.counts)


def compare(
    module: Module, inputs: Sequence[np.ndarray], nodes: Nodes, own: int,
    imported: Module | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compared:  # fmt: skip
    """Compare the values of ``module``, an import, with those of the framework.

    ``inputs`` are arrays for main's arguments, the first ``own`` of them the model's own inputs
    (the others are its state).  ``nodes`` name values of ``imported``, by default ``module``; else
    another import of the same model, whose ops are the same in the same order.  ``progress`` hears
    how many nodes of how many are done.
    """
    all_values = nodes.values
    if imported is not None:
        all_values = _there(all_values, imported, module)
    once = _once(all_values)
    sized = {
        name: [() if v is None else nodes.sized.get(v, ()) for v in values]
        for name, values in nodes.values.items()
    }
    comparison = _Comparison(module, inputs, nodes, all_values, once, sized)
    told = 0

    def tell(
        name: str, arrays: Sequence[np.ndarray | None], in_f64: InF64
    ) -> list[bool]:  # fmt: skip
        nonlocal told
        progress(told, len(all_values))
        told += 1
        if name not in all_values:
            return [False] * len(arrays)
        return comparison.node(name, all_values[name], once[name], arrays, in_f64)

    made = nodes.run([np.array(a) for a in inputs[:own]], tell)  # a program may write to its own
    outputs = (module if imported is None else imported).main.outputs
    comparison.results(made, {i: nodes.sized.get(outputs[i], ()) for i in made if i < len(outputs)})
    return comparison.found


class _Comparison:
    """One comparison, node by node."""

    def __init__(self, module: Module, inputs: Sequence[np.ndarray], nodes: Nodes,
                 values: Mapping[str, Sequence[Value | None]],
                 once: Mapping[str, Sequence[Value | None]],
                 sized: Mapping[str, Sequence[Collection[int]]]):  # fmt: skip
        self.found, self.sized = Compared(), sized
        self.module, self.inputs, self.framework = module, inputs, nodes.framework
        self.whole = _Ours(module, inputs, once)
        self.alone = Alone(module, inputs, values)
        self._constants, self._open_ties = nodes.constants, nodes.open_ties
        self._errors: dict[Value, tuple[str, float]] = {}
        self._drawn = random_values(module)
        #: The model's results that nodes make: which, and their tensors.
        self._results: dict[Value, tuple[str, np.ndarray]] = {}

    def node(self, name: str, values: Sequence[Value | None], once: Sequence[Value | None],
             arrays: Sequence[np.ndarray | None], in_f64: InF64) -> list[bool]:  # fmt: skip
        """Judge what a node made; whether each of its tensors is gone on from."""
        wide = cache(in_f64)
        pairs = list(zip(values, once, arrays, strict=False))
        known = {v: self.alone.make(v) for v in values if v is not None}
        for place, (value, first, theirs) in enumerate(pairs):
            if value is None:
                continue
            mine = self.whole.take(first) if first is not None else None
            made = known[value]
            drawn = value in self._drawn
            draws = drawn and made is not None and self.alone.draws(made)
            if made is None or theirs is None or draws:
                self.found.left_out += 1
                self.found.counts["not_compared"] += 1
                if draws and made is not None and theirs is not None:
                    self._drawn_alike(name, value, made, theirs)
                continue
            if _form(made.array) != _form(theirs):
                axes = self.sized[name][place]
                if axes and _has_room(made.array, theirs, axes):
                    if mine is not None and not drawn and _has_room(mine, theirs, axes):
                        self._record(value, name, _cut(mine, theirs.shape), theirs)
                    self._judge(name, value, made, theirs, partial(_nth, wide, place))
                else:
                    self._judged(name, value, made, _other_form(made.array, theirs))
                continue
            if mine is not None and not drawn:
                self._record(value, name, mine, theirs)
            self._judge(name, value, made, theirs, partial(_nth, wide, place))
        return [
            value is not None and self.alone.told(value, known[value], theirs)
            for value, _, theirs in pairs
        ]

    def _drawn_alike(self, node: str, value: Value, made: Known, theirs: np.ndarray) -> None:
        """Judge random numbers by their form and distribution."""
        if _form(made.array) != _form(theirs):
            self._judged(node, value, made, _other_form(made.array, theirs))
            return
        operands = [k.array for k in self.alone.given(made) if k.array.shape == theirs.shape]
        floats = [a for a in operands if a.dtype.kind not in "biu"]
        said = unlike(made.array, theirs, floats[0] if len(floats) == 1 else None)
        if said:
            off = Distance(math.inf, ulps=None, note=said)
            self._judged(node, value, made, Judgement("differs", off, note=said))

    def _record(self, value: Value, node: str, ours: np.ndarray, theirs: np.ndarray) -> None:
        record = _record(value, self.framework, node, ours, theirs)
        self.found.records.append(record)
        self._errors[value] = value.name or node, record.error
        if value in self.module.main.outputs:
            self._results[value] = node, np.array(theirs)

    def _judge(self, node: str, value: Value, made: Known, theirs: np.ndarray,
               wide: Callable[[], np.ndarray | None]) -> None:  # fmt: skip
        constants, open_ties = self._constants.get(node, 0.0), node in self._open_ties
        self._judged(node, value, made,
                     self.alone.judge(made, theirs, wide, constants, open_ties))  # fmt: skip

    def _judged(self, node: str, value: Value, made: Known, judged: Judgement) -> None:
        self.found.counts[judged.verdict] += 1
        if judged.verdict == "differs" and self.found.beyond is None:
            op = made.op if made.op is not None else self.alone.makers.get(value)
            inputs = tuple(
                self._errors.get(v, (v.name or "an input", 0.0)) for v in self.alone.boundary(made)
            )
            self.found.beyond = Beyond(node, *described(op), True, judged, inputs)

    def results(self, made: Mapping[int, np.ndarray], sized: Mapping[int, Collection[int]]) -> None:
        """Judge the model's results and the state that it leaves (``made``, by place) as a whole,
        where every node is right alone."""
        if self.found.beyond is not None:
            return
        whole, outputs = Whole(self.module, self.inputs), self.module.main.outputs
        for place, theirs in sorted(made.items()):
            if place >= len(outputs):
                judged = Judgement("differs", note=f"the import has {len(outputs)} results")
                self.found.beyond = Beyond(result_name(self.module, place), "", "", False, judged)
                return
            value = outputs[place]
            ours = None if value in self._drawn else self.whole.take(value)
            if ours is None:
                continue
            node, told = self._results.get(value) or ("", None)
            if _form(ours) == _form(theirs) or _has_room(ours, theirs, sized.get(place, ())):
                # Another tensor than that node's: nothing has compared the two yet.
                same = told is not None and told.shape == theirs.shape and same_bits(told, theirs)
                judged = self._result(whole, place, ours, theirs, same)
                node = node if same else ""
            else:
                judged = _other_form(ours, theirs)
            if judged.verdict == "differs":
                op = self.alone.makers.get(value)
                name = node or result_name(self.module, place)
                self.found.beyond = Beyond(name, *described(op), False, judged)
                return

    def _result(self, whole: Whole, place: int, ours: np.ndarray, theirs: np.ndarray,
                same: bool) -> Judgement:  # fmt: skip
        """``same``: the framework's is the tensor of the node that ours is of, which is right
        alone."""

        def cut(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            return [_cut(a, theirs.shape) if i == place else a for i, a in enumerate(arrays)]

        judged = judge(theirs, _cut(ours, theirs.shape),
                       whole.evidence(place, same_algebra=same, counted=cut))  # fmt: skip
        if same and judged.verdict == "differs" and theirs.dtype.kind in "biu":
            # Decided rightly on the framework's operands: rounding before it.
            return replace(judged, verdict="within")
        return judged


def result_name(module: Module, place: int) -> str:
    """What a result of main is called: of one that becomes an argument, the state."""
    arguments = module.main.arguments
    for result, argument in module.main.attributes.get("aliases", ()):
        if result == place:
            return f"{arguments[argument].name}, the state that a call leaves"
    return f"result {place} of the model"


def described(op: Op | None) -> tuple[str, str]:
    """An op as text, and its line of the model (``file:line``; "" where it is not known)."""
    if op is None:
        return "", ""
    nodes = op.origin.nodes() if op.origin is not None else ()
    return print_op(op), next((f"{n.file}:{n.line}" for n in nodes if n.file), "")


def maker(module: Module, place: int) -> Op | None:
    """The op that makes a result of ``main``; None of an input that is handed on."""
    value = module.main.outputs[place]
    return next((op for op in module.main.body.ops if value in op.results), None)


def random_values(module: Module) -> set[Value]:
    """The values of ``main`` that depend on random numbers."""
    drawn: set[Value] = set()
    for op in module.main.body.ops:
        if _is_random(op) or any(v in drawn for v in op.uses()):
            drawn.update(op.results)
    return drawn


def _is_random(op: Op) -> bool:
    if op.kind.startswith("core.") and "random" in definition(op).traits:
        return True
    return any(_is_random(inner) for region in op.regions for inner in region.ops)


def _nth(made: InF64, place: int) -> np.ndarray | None:
    arrays = made()
    return None if arrays is None or place >= len(arrays) else arrays[place]


def _record(
    value: Value, framework: str, node: str, ours: np.ndarray, theirs: np.ndarray
) -> FrameworkRecord:
    if same_bits(theirs, ours):
        return FrameworkRecord(value, framework, node)
    off = distance(theirs, ours, theirs.dtype)
    return FrameworkRecord(
        value, framework, node, False, off.relative, off.index, off.want, off.got
    )


def _once(values: Mapping[str, Sequence[Value | None]]) -> dict[str, list[Value | None]]:
    """Each value with the first node that has it: others only hand it on."""
    seen: set[Value] = set()
    made = {}
    for name, found in values.items():
        made[name] = [None if v in seen else v for v in found]
        seen.update(v for v in found if v is not None)
    return made


def _form(array: np.ndarray) -> tuple:
    return array.shape, array.dtype


def _has_room(ours: np.ndarray, theirs: np.ndarray, axes: Collection[int]) -> bool:
    """Whether ours is larger, if at all, only along ``axes``, where data decide how much counts."""
    return ours.dtype == theirs.dtype and ours.ndim == theirs.ndim and all(
        a >= b if axis in axes else a == b
        for axis, (a, b) in enumerate(zip(ours.shape, theirs.shape, strict=True))
    )  # fmt: skip


def _other_form(ours: np.ndarray, theirs: np.ndarray) -> Judgement:
    note = f"it is {ours.dtype}{list(ours.shape)} here and {theirs.dtype}{list(theirs.shape)} there"
    return Judgement("differs", Distance(math.inf, ulps=None, note=note), note=note)


def _there(
    values: Mapping[str, Sequence[Value | None]], imported: Module, module: Module
) -> dict[str, list[Value | None]]:
    """The values of ``module`` that stand where those of ``imported`` stand."""
    mine, theirs = module.main.body.ops, imported.main.body.ops
    same = len(mine) == len(theirs) and all(
        a.kind == b.kind and [r.type for r in a.results] == [r.type for r in b.results]
        for a, b in zip(mine, theirs, strict=True)
    )
    if not same:
        raise ValueError("the two imports are not of one model")
    pairs = zip(
        (v for op in theirs for v in op.results), (v for op in mine for v in op.results),
        strict=True,
    )  # fmt: skip
    place = dict(pairs) | dict(zip(imported.main.arguments, module.main.arguments, strict=True))
    return {
        name: [None if v is None else place.get(v) for v in found] for name, found in values.items()
    }


# -- nodes alone ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Known:
    """A tensor by our ops, and what it was made of: ``op`` on ``uses`` (None: the framework's own
    tensor, an input, or a stored constant)."""

    array: np.ndarray
    value: Value
    op: Op | None = None
    uses: Mapping[Value, Known] = field(default_factory=dict)
    place: int = 0


class Alone:
    """Our ops on the framework's own operands: what the framework told takes the place of what we
    made of it.  A value is forgotten when no op and no node is left that reads it."""

    def __init__(self, module: Module, inputs: Sequence[np.ndarray],
                 wanted: Mapping[str, Sequence[Value | None]]):  # fmt: skip
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        body = module.main.body.ops
        self.makers = {v: op for op in body for v in op.results}
        self._ops = iter(body)
        self._known = {
            v: Known(a, v) for v, a in zip(module.main.arguments, inputs, strict=True)
        }  # fmt: skip
        self._readers = Counter(v for op in body for v in set(op.uses()))
        self._readers.update(v for values in wanted.values() for v in values if v is not None)

    def make(self, value: Value) -> Known | None:
        """A value by our ops on what was told so far; None where ``main`` has no such tensor."""
        while value not in self._known and value in self.makers:
            op = next(self._ops, None)
            if op is None:
                return None  # a node that the framework runs twice
            self._execute(op)
        found = self._known.get(value)
        return found if found is not None and isinstance(found.array, np.ndarray) else None

    def told(self, value: Value, made: Known | None, theirs: np.ndarray | None) -> bool:
        """What the framework has for a value; later ops read that.  False where it is no such
        tensor."""
        fits = made is not None and theirs is not None and _form(made.array) == _form(theirs)
        if made is not None and theirs is not None and fits:
            # The same array where the bits are the same: ops on it need no second evaluation.
            array = made.array if same_bits(theirs, made.array) else np.array(theirs)
            if value in self._known and made.op is not None:  # else it was told before
                self._known[value] = Known(array, value)
        self._read(value)
        return fits

    def _execute(self, op: Op) -> None:
        uses = {v: self._known[v] for v in op.uses()}
        outer = {v: k.array for v, k in uses.items()}
        results = self._evaluator.op(op, [outer[v] for v in op.operands], outer)
        stored = op.kind in CONSTANTS and _is_stored(op)
        for place, (value, array) in enumerate(zip(op.results, results, strict=True)):
            self._known[value] = Known(array, value, None if stored else op, uses, place)
        for read in set(op.uses()):
            self._read(read)
        for value in op.results:
            if not self._readers[value]:
                self._known.pop(value, None)

    def _read(self, value: Value) -> None:
        self._readers[value] -= 1
        if self._readers[value] <= 0:
            self._known.pop(value, None)

    # -- judging ---------------------------------------------------------------------------------

    def judge(self, made: Known, theirs: np.ndarray,
              wide: Callable[[], np.ndarray | None] = lambda: None,
              constants: float = 0.0, open_ties: bool = False) -> Judgement:  # fmt: skip
        """The verdict on a value that our ops made of the framework's operands; ``theirs`` may be
        smaller along axes whose size data decide: there the first elements count."""
        if open_ties and theirs.dtype.kind in "iu" and made.op is not None and _are_ties(
            made.op, made.uses[made.op.operands[0]].array, made.array, theirs
        ) and not same_bits(theirs, made.array):  # fmt: skip
            return Judgement("within", distance(theirs, made.array), note="positions of equals")

        def in_f64(*how: Any) -> np.ndarray:
            return _cut(self.in_f64(made, *how), theirs.shape)

        @cache
        def truth() -> np.ndarray | None:
            try:
                return in_f64()
            except (InternalError, KeyError, TypeRuleError):  # an op that has no meaning in f64
                return None

        return judge(theirs, _cut(made.array, theirs.shape), Evidence(
            truth,
            cache(lambda seed, zeros=True: in_f64(moved(seed, zeros))),
            cache(lambda seed: in_f64(nudge(seed), FormulaNudged(
                self._evaluator, np.random.default_rng(seed)))),
            wide,
            terms=lambda: terms(self._ops_of(made)), constants=constants,
            stepped=lambda up: in_f64(stepped(up)),
            unrounded=lambda: _cut(self.unrounded(made), theirs.shape),
            exact=lambda: not (open_ties and theirs.dtype.kind in "iu")
            and all(map(_is_exact, self._ops_of(made))),
        ))  # fmt: skip

    def in_f64(self, made: Known, move: Callable[[np.ndarray], np.ndarray] = widened,
               wide: Wide | None = None) -> np.ndarray:  # fmt: skip
        """A value by our ops in f64, its operands being what ``move`` makes of theirs."""
        return self._in_f64(made, move, wide)[made]

    def _in_f64(self, made: Known, move: Callable[[np.ndarray], np.ndarray] = widened,
                wide: Wide | None = None) -> dict[Known, np.ndarray]:  # fmt: skip
        """As :meth:`in_f64`, with all that it is made of."""
        wide = wide or Wide(self._evaluator)
        values: dict[Known, np.ndarray] = {}
        done: dict[tuple[int, Any], tuple[np.ndarray, ...]] = {}
        stack = [made]
        while stack:
            current = stack[-1]
            if current in values:
                stack.pop()
                continue
            if current.op is None:
                values[current] = move(current.array)
                continue
            missing = [k for k in current.uses.values() if k not in values]
            if missing:
                stack.extend(missing)
                continue
            key = id(current.op), id(current.uses)
            if key not in done:
                outer = {v: values[k] for v, k in current.uses.items()}
                operands = [outer[v] for v in current.op.operands]
                done[key] = wide.op(current.op, operands, outer)
            values[current] = done[key][current.place]
        return values

    def unrounded(self, made: Known) -> np.ndarray:
        """The elements for which no op rounds anything, as it happens: f64 makes the same numbers
        on the way.  Only of ops that work element by element."""
        nowhere, everywhere = np.zeros(made.array.shape, bool), np.ones(made.array.shape, bool)
        if not all(map(_by_element, self._ops_of(made))):
            return nowhere
        for known, wide in self._in_f64(made).items():
            with np.errstate(invalid="ignore"):
                here = widened(known.array)
                same = np.asarray((here == wide) | ((here != here) & (wide != wide)))
            if same.shape == everywhere.shape:
                everywhere &= same
            elif not same.all():
                return nowhere
        return everywhere

    def boundary(self, made: Known) -> list[Value]:
        """The values that the framework gave the ops of a value, without stored constants."""
        return [known.value for known in self.given(made)]

    def given(self, made: Known) -> list[Known]:
        """What the framework gave the ops of a value, without stored constants."""
        found: dict[Value, Known] = {}
        seen, stack = {made}, [made]
        while stack:
            current = stack.pop()
            if current.op is None:
                maker = self.makers.get(current.value)
                if maker is None or maker.kind not in CONSTANTS:
                    found.setdefault(current.value, current)
                continue
            fresh = [k for k in current.uses.values() if k not in seen]
            seen.update(fresh)
            stack.extend(reversed(fresh))
        return list(found.values())

    def draws(self, made: Known) -> bool:
        """Whether the ops of a value, from what the framework told on, draw random numbers."""
        return any(map(_is_random, self._ops_of(made)))

    def _ops_of(self, made: Known) -> list[Op]:
        """The ops of a value, from what the framework told on."""
        found: list[Op] = []
        seen, stack = {made}, [made]
        while stack:
            current = stack.pop()
            if current.op is None:
                continue
            found.append(current.op)
            fresh = [k for k in current.uses.values() if k not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return found


def terms(ops: Iterable[Op]) -> int:
    """How many terms the longest sum of ``ops`` adds up to one element."""
    most = 1
    for op in ops:
        elements = max((v.type.elements for v in op.results if is_sized(v.type)), default=0)
        if elements and op.kind not in CONTROL_FLOW and op.kind.startswith("core."):
            most = max(most, cost(op).flops // (2 * elements))
    return most


def _cut(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The first elements along each axis, as many as ``shape`` says."""
    return array[tuple(map(slice, shape))]


def _is_exact(op: Op) -> bool:
    """Whether an op rounds nothing: it moves, compares and chooses, or makes integers of
    integers."""
    if op.regions or not op.kind.startswith("core.") or _is_random(op):
        return False
    if not any(is_sized(v.type) and v.type.dtype.is_float for v in (*op.operands, *op.results)):
        return True
    if op.kind == "core.cast":
        return not op.result.type.dtype.is_float
    declared = definition(op)
    if declared.decompose is not None:
        return all(map(_is_exact, decomposed(op).ops))
    return declared.is_exact


def _by_element(op: Op) -> bool:
    """Whether an op works element by element, with nothing inside that rounds on its own."""
    if op.kind in CONSTANTS or op.kind in ("core.broadcast", "core.iota"):
        return True
    if op.regions or not op.kind.startswith("core.") or _is_random(op):
        return False
    declared = definition(op)
    return "elementwise" in declared.traits and declared.decompose is None


def _is_stored(op: Op) -> bool:
    nodes = op.origin.nodes() if op.origin is not None else ()
    return any(n.kind in _STORED for n in nodes)


def moved(seed: int, zeros: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """What moves an array by up to an ulp of its own dtype, in f64; ``zeros`` move by next to
    nothing, which decides between equals."""
    random = np.random.default_rng(seed)

    def move(array: np.ndarray) -> np.ndarray:
        wide = widened(array)
        if wide.dtype != np.float64 or not wide.size:
            return wide
        step = random.integers(-1, 2, array.shape)
        nothing = (wide == 0) * step * 1e-300 if zeros else 0.0
        return wide * (1 + epsilon(array.dtype) * step) + nothing

    return move


def stepped(up: int) -> Callable[[np.ndarray], np.ndarray]:
    """What moves an array by an ulp of its own dtype, in f64: all of it up (1) or down (-1)."""

    def move(array: np.ndarray) -> np.ndarray:
        wide = widened(array)
        if wide.dtype != np.float64 or not wide.size:
            return wide
        return wide + up * np.where(wide == 0, 1e-300, np.abs(wide) * epsilon(array.dtype))

    return move


def nudge(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """What moves an array by up to an ulp of f64."""
    random = np.random.default_rng(seed)
    return lambda array: nudged(widened(array), random)


class FormulaNudged(Wide):
    """Evaluates in f64 with every constant of a formula moved by up to its rounding: the framework
    may have it with more digits.  The model's own constants are exact."""

    def __init__(self, narrow: Evaluator, random: np.random.Generator):
        super().__init__(narrow)
        self._random = random

    def op(self, op: Op, arrays: Sequence[np.ndarray],
           outer: Mapping[Value, np.ndarray] | None = None):  # fmt: skip
        results = super().op(op, arrays, outer)
        if op.kind not in CONSTANTS or _is_stored(op):
            return results
        kind = op.results[0].type.dtype.numpy
        return tuple(self._rounded(array, epsilon(kind)) for array in results)

    def _rounded(self, array: np.ndarray, ulp: float) -> np.ndarray:
        if array.dtype != np.float64 or not array.size:
            return array
        digits = np.frexp(array)[0] * 2.0 ** min(_DIGITS, max(2, -np.log2(ulp) / 2))
        exact = ~np.isfinite(array) | (digits == np.round(digits))
        step = self._random.uniform(-0.5, 0.5, array.shape) * ulp
        return np.where(exact, array, array * (1 + step))


def _are_ties(
    op: Op | None, x: np.ndarray, ours: np.ndarray, theirs: np.ndarray, apart: float = 0.0
) -> bool:
    """Whether two answers of ``op``, positions in ``x``, differ only between elements that are
    equal, or no more than ``apart`` from each other."""
    if op is None or op.kind not in _POSITIONS or theirs.shape != ours.shape:
        return False
    axis = op["axis"]
    if axis < 0 or theirs.size == 0 or theirs.min() < 0 or theirs.max() >= x.shape[axis]:
        return False
    if op.kind in ("core.argmax", "core.argmin"):
        ours, theirs = (np.expand_dims(a, axis) for a in (ours, theirs))
    elif (np.diff(np.sort(theirs, axis), axis=axis) == 0).any():
        return False  # a position twice
    at_ours, at_theirs = (np.take_along_axis(x, i.astype(np.int64), axis) for i in (ours, theirs))
    same = (at_ours == at_theirs) | ((at_ours != at_ours) & (at_theirs != at_theirs))
    if apart:
        with np.errstate(invalid="ignore"):
            same |= np.abs(at_ours.astype(np.float64) - at_theirs.astype(np.float64)) <= apart
    return bool(same.all())


# -- as a whole -----------------------------------------------------------------------------------


#: What evaluating an import raises where one of its ops has no reference, or none in f64.
_NO_MEANING = (InternalError, KeyError, TypeRuleError)


class Whole:
    """The results of an import in f64, and with inputs and weights moved."""

    def __init__(self, module: Module, inputs: Sequence[np.ndarray]):
        self._module, self._inputs = module, [np.asarray(a) for a in inputs]
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        self._results = cache(self._evaluated)
        self._by_references = cache(
            lambda: list(self._evaluator.block(module.main.body, self._inputs))
        )

    def evidence(
        self, place: int, others: Callable[[], Sequence[np.ndarray]] = lambda: (),
        same_algebra: bool = False,
        counted: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = list,
    ) -> Evidence:  # fmt: skip
        """What the result at ``place`` is judged by; ``counted`` as :func:`judge_results` has
        it."""

        def truth() -> np.ndarray | None:
            try:
                return counted(self._results(None))[place]
            except _NO_MEANING:
                return None

        def moved(seed: int, zeros: bool = True) -> np.ndarray:
            return counted(self._results(seed, zeros))[place]

        return Evidence(truth, moved, others=others,
                        same_algebra=same_algebra, own=lambda: self.own(place, counted),
                        terms=lambda: terms(self._module.main.body.ops))  # fmt: skip

    def own(
        self, place: int,
        counted: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = list,
    ) -> np.ndarray | None:  # fmt: skip
        """The result at ``place`` by the references, bit for bit what exact passes keep; None where
        an op of the import has none."""
        try:
            return counted(self._by_references())[place]
        except _NO_MEANING:
            return None

    def _evaluated(self, seed: int | None, zeros: bool = True) -> list[np.ndarray]:
        move = widened if seed is None else moved(seed, zeros)
        wide, body, known = Wide(self._evaluator), self._module.main.body, {}
        for op in body.ops:
            if op.kind in CONSTANTS:
                array = self._evaluator.op(op, ())[0]
                # A single number belongs to a formula: 1 is 1.
                known[op.results[0]] = move(array) if array.size > 1 else widened(array)
        return list(wide.block(body, [move(a) for a in self._inputs], known=known))


def judge_results(
    module: Module, inputs: Sequence[np.ndarray], ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray], others: Callable[[], Sequence[Sequence[np.ndarray]]],
    counted: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = list,
    nodes_right: bool = False,
) -> list[Judgement]:  # fmt: skip
    """The verdict on each result of a program that was made of ``module``, beside a framework's.

    Where more than a few ulps differ, a result is also held to what the references make of
    ``module``: by their bits, or as another program's.  ``nodes_right``: each node of the import is
    right alone (:func:`compare`), so that a program with the import's bits is right.
    ``counted`` makes of main's results those that are compared.  ``others``: the framework's on
    inputs moved by an ulp.
    """
    whole, drawn = Whole(module, inputs), random_values(module)
    moved_results = cache(others)

    def judged(place: int, mine: np.ndarray, there: np.ndarray) -> Judgement:
        random = module.main.outputs[place] in drawn
        if random:
            found = Judgement("not_compared", note="it depends on random numbers")
        else:
            evidence = whole.evidence(place, partial(_each, moved_results, place), counted=counted)
            found = judge(there, mine, evidence)
        if found.verdict == "differs" and _are_near_ties(module, inputs, place, mine, there):
            note = "positions of numbers that rounding may make equal"
            found = replace(found, verdict="within", note=note)
        if found.verdict == "equal" or _is_near(found, mine):
            return found
        own = whole.own(place, counted)
        if own is None:
            return found
        if same_bits(own, mine):
            if found.verdict == "differs" and nodes_right:
                note = "the bits of the import, each node of which is right alone"
                found = replace(found, verdict="within", note=note)
            return replace(found, kept=True)
        if found.verdict == "differs" or random:
            return found
        beside = judge(own, mine, whole.evidence(place, counted=counted))
        if beside.verdict == "differs":
            return replace(beside, note=f"beside the import: {beside.note}")
        return found

    return [
        judged(place, mine, there)
        for place, (mine, there) in enumerate(zip(ours, theirs, strict=True))
    ]


def _are_near_ties(
    module: Module, inputs: Sequence[np.ndarray], place: int, ours: np.ndarray, theirs: np.ndarray
) -> bool:
    """Whether a result is of positions, and differs from the framework's only between elements that
    are as near to each other as rounding before them may bring them."""
    if ours.dtype.kind not in "iu":
        return False
    op = maker(module, place)
    if op is not None and op.kind == "core.cast":
        op = next((o for o in module.main.body.ops if op.operands[0] in o.results), None)
    if op is None or op.kind not in _POSITIONS or not op.operands[0].type.dtype.is_float:
        return False
    main = module.main
    body = Block(main.arguments, main.body.ops, (op.operands[0],))
    whole = Whole(module.with_function(main.with_(body=body)), inputs)
    x, evidence = whole.own(0), whole.evidence(0)
    truth = evidence.truth()
    if x is None or truth is None:
        return False
    condition = max(distance(truth, evidence.moved(seed)).relative for seed in range(SEEDS))
    apart = MARGIN * max(epsilon(x.dtype), condition)
    top = float(np.max(np.abs(truth), where=np.isfinite(truth), initial=0.0))
    return _are_ties(op, x, ours, theirs, min(apart, VAGUE) * top)


def judge_state(
    module: Module, inputs: Sequence[np.ndarray], left: Sequence[np.ndarray]
) -> dict[int, Judgement]:
    """The verdict on each part of the state that a call of a program on ``inputs`` ``left``, beside
    what the import ``module`` makes of them, by its place in ``main.outputs``.  What depends on
    random numbers or has no reference is left out."""
    whole, drawn = Whole(module, inputs), random_values(module)
    aliases = module.main.attributes.get("aliases", ())
    found = {}
    for (place, _), mine in zip(aliases, left, strict=True):
        own = None if module.main.outputs[place] in drawn else whole.own(place)
        if own is not None:
            found[place] = judge(own, mine, whole.evidence(place))
    return found


def _is_near(found: Judgement, ours: np.ndarray) -> bool:
    """Whether floats are so near the framework's that nothing else is to be asked."""
    return (
        found.verdict == "within" and ours.dtype.kind not in "biu"
        and found.distance.relative <= EACH_ULPS * epsilon(ours.dtype)
    )  # fmt: skip


def _each(made: Callable[[], Sequence[Sequence[np.ndarray]]], place: int) -> list[np.ndarray]:
    return [results[place] for results in made()]


def moved_inputs(inputs: Sequence[np.ndarray], seeds: int = SEEDS) -> list[list[np.ndarray]]:
    """``inputs`` with every float moved by up to an ulp of its dtype, for each seed."""
    made = []
    for seed in range(seeds):
        move = moved(seed)
        made.append([move(a).astype(a.dtype) for a in inputs])
    return made


class _Ours:
    """The import, evaluated as far as it is asked for; a value is forgotten when no op and no node
    is left that reads it."""

    def __init__(
        self, module: Module, inputs: Sequence[np.ndarray],
        wanted: Mapping[str, Sequence[Value | None]],
    ):  # fmt: skip
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        self._ops = iter(module.main.body.ops)
        self._makes = {v for op in module.main.body.ops for v in op.results}
        self._known = dict(zip(module.main.arguments, inputs, strict=True))
        self._readers = Counter(v for op in module.main.body.ops for v in set(op.uses()))
        self._readers.update(v for values in wanted.values() for v in values if v is not None)
        self._readers.update(module.main.outputs)

    def take(self, value: Value) -> np.ndarray | None:
        """The tensor of a value; None where it is no tensor of ``main``."""
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
