"""Evaluation of any stage on real tensors by the reference, with sharing and a memory bound."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from core_compiler.debug.divisions import divides_integers
from core_compiler.ir import Block, Function, Op, Value, WeightStore, attributes_key
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ops.base import definition
from core_compiler.ops.evaluation import evaluate
from core_compiler.passes.base import CONTROL_FLOW
from core_compiler.support.errors import InternalError

#: Number of words of an array that are sampled, besides its sum, to find equal arrays.
_SAMPLED = 1024


class _ResultCache:
    """A cache of results of at most ``most`` bytes.

    When it is full, results are evicted that took the least time for their bytes and were not used
    recently (GreedyDual-Size: P. Cao and S. Irani, "Cost-aware WWW proxy caching algorithms",
    1997). LRU would be wrong: stages are evaluated one after another from first op to last, so the
    least recently used result is the next one needed.
    """

    def __init__(self, most: int):
        self.most, self.bytes = most, 0
        self._entries: dict[tuple, list] = {}  # inputs, results, seconds per byte, priority
        self._order: list[tuple[float, int, tuple]] = []  # priorities may be out of date
        self._floor, self._count = 0.0, 0

    def get(self, key: tuple) -> tuple | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry[3] = self._floor + entry[2]
        return entry[1]

    def put(self, key: tuple, inputs: tuple, results: tuple, seconds: float) -> None:
        """Keep ``results`` with their ``inputs``, so that no id is reused while they are kept."""
        size = sum(r.nbytes for r in results)
        price = seconds / max(size, 1)
        self._entries[key] = [inputs, results, price, self._floor + price]
        self._push(key)
        self.bytes += size
        while self.bytes > self.most and len(self._entries) > 1:
            worth, _, old = heappop(self._order)
            if worth < self._entries[old][3]:
                self._push(old)
                continue
            self._floor = worth
            self.bytes -= sum(r.nbytes for r in self._entries.pop(old)[1])

    def _push(self, key: tuple) -> None:
        self._count += 1
        heappush(self._order, (self._entries[key][3], self._count, key))


class Evaluator:
    """An evaluator of ops with shared results and a bound (``keep_bytes``) on the bytes kept.

    Their inputs are kept with them, up to the same bound again.  Two ops of the same kind and
    attributes on the same arrays return the same arrays, so a rewrite that only regroups ops costs
    nothing to check.  Results with equal bits are one array, so what follows an exact rewrite is
    not evaluated again.
    """

    def __init__(
        self,
        weights: WeightStore,
        keep_bytes: int = 2 << 30,
        functions: Mapping[str, Function] | None = None,
    ):
        self.weights = weights
        self.functions = functions or {}  # functions that ops of a frontend's level may call
        #: For each integer division that met a zero divisor: (zeros, elements) of the worst
        #: evaluation.
        self.zero_divisors: dict[Op, tuple[int, int]] = {}
        #: Number of evaluated regions of loops and branches.  No correct program on the same values
        #: evaluates more loop conditions.
        self.loop_evaluations = 0
        #: Limit on the evaluations of one loop; None: no limit.
        self.limit: int | None = None
        self._cache = _ResultCache(keep_bytes)
        self._arrays: WeakValueDictionary[tuple, np.ndarray] = WeakValueDictionary()

    def op(
        self, op: Op, arrays: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return the results of one op (a group or a launch by its region).

        ``outer`` holds the values from the enclosing scope that its regions read.
        """
        if op.kind in MEANING_IN_REGION:
            return self.block(op.regions[0], arrays)
        if op.kind.startswith("onnx."):
            from core_compiler.onnx_level.evaluate import evaluate as evaluate_onnx

            return evaluate_onnx(op, arrays, self.weights, outer or {}, self.functions)
        if op.kind in CONTROL_FLOW:
            execute = definition(op).execute
            assert execute is not None
            before = self.loop_evaluations

            def run(block: Block, given: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
                self.loop_evaluations += 1
                if self.limit is not None and self.loop_evaluations - before > self.limit:
                    raise InternalError(f"{op} has not ended after {self.limit // 2} iterations")
                return self.block(block, given, outer)

            return tuple(execute(op, list(arrays), run))
        if op.regions:
            return evaluate(op, arrays, self.weights, outer)
        if divides_integers(op) and not arrays[1].all():
            size = arrays[1].size
            zeros = size - int(np.count_nonzero(arrays[1])), size
            self.zero_divisors[op] = max(self.zero_divisors.get(op, zeros), zeros)
        key = (op.kind, attributes_key(op.attributes.items()), tuple(map(id, arrays)))
        found = self._cache.get(key)
        if found is not None:
            return found
        started = time.perf_counter()
        declared = definition(op)
        if declared.reference is None and declared.decompose is not None:
            from core_compiler.ops.builder import decomposed

            results = self.block(decomposed(op), arrays)
        else:
            results = evaluate(op, arrays, self.weights)
        results = tuple(map(self.shared, results))
        self._cache.put(key, tuple(arrays), results, time.perf_counter() - started)
        return results

    def shared(self, array: np.ndarray) -> np.ndarray:
        """Return an array in use with the same shape, dtype and bits, else ``array`` itself.

        A shared array must not be written.
        """
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:  # a sequence of tensors
            return array
        if 0 in array.strides:  # a broadcast array without memory of its own
            return array
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        wide = next(w for w in (8, 4, 2, 1) if flat.size % w == 0)
        words = flat.view(f"u{wide}")
        some = hash(words[:: len(words) // _SAMPLED + 1].tobytes())
        key = array.shape, array.dtype, int(words.sum(dtype=np.uint64)), some
        found = self._arrays.setdefault(key, array)
        if found is array:
            return array
        other = np.ascontiguousarray(found).reshape(-1).view(np.uint8).view(words.dtype)
        return found if np.array_equal(words, other) else array

    def block(
        self,
        block: Block,
        arrays: Sequence[np.ndarray],
        outer: Mapping[Value, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Return the outputs of a block.

        ``outer`` holds the values of the enclosing scope that it reads.
        """
        values = {**(outer or {}), **dict(zip(block.arguments, arrays, strict=True))}
        run_block(block, values, self)
        return tuple(values[v] for v in block.outputs)


def run_block(block: Block, values: dict[Value, np.ndarray], evaluator: Evaluator) -> None:
    """Evaluate every op of ``block`` into ``values``."""
    for op in block.ops:
        results = evaluator.op(op, [values[v] for v in op.operands], values)
        values.update(zip(op.results, results, strict=True))


class Recorded(Protocol):
    """The tensors of values, as :class:`Values` and mappings provide them."""

    def __getitem__(self, value: Value, /) -> Any: ...


class Values:
    """The tensors of values across stages, evaluated lazily by the ops that define them.

    A value never changes its meaning, so the first op seen that defines it may serve.  ``inputs``
    binds the arguments of ``main``.  Values inside control flow are those of a loop's first
    iteration, and of a branch as if it were taken.
    """

    def __init__(self, evaluator: Evaluator, inputs: Mapping[Value, np.ndarray]):
        self.evaluator = evaluator
        self.known: dict[Value, np.ndarray] = dict(inputs)
        self.makers: dict[Value, Op] = {}
        self.given: dict[Value, Value] = {}

    def learn(self, ops) -> None:
        """Record ops, and those nested in them, whose results may be requested."""
        for op in ops:
            for value in op.results:
                self.makers.setdefault(value, op)
            if op.kind in CONTROL_FLOW:
                for region in op.regions:
                    operands = op.operands[len(op.operands) - len(region.arguments) :]
                    for argument, value in zip(region.arguments, operands, strict=True):
                        self.given.setdefault(argument, value)
                    self.learn(region.ops)

    def forget(self, keep: set[Value]) -> None:
        """Drop the tensors of values outside ``keep``; they are evaluated again on demand."""
        again = self.makers.keys() | self.given.keys()
        self.known = {v: a for v, a in self.known.items() if v in keep or v not in again}

    def __getitem__(self, value: Value) -> np.ndarray:
        found = self.known.get(value)
        if found is not None:
            return found
        stack = [value]
        while stack:
            current = stack[-1]
            if current in self.known:
                stack.pop()
                continue
            given = self.given.get(current)
            if given is not None:
                if given in self.known:
                    self.known[current] = self.known[given]
                else:
                    stack.append(given)
                continue
            op = self.makers.get(current)
            if op is None:
                raise KeyError(f"unknown producer of {current}")
            missing = [v for v in op.uses() if v not in self.known]
            if missing:
                stack.extend(reversed(missing))
                continue
            arrays = [self.known[v] for v in op.operands]
            results = self.evaluator.op(op, arrays, self.known)
            self.known.update(zip(op.results, results, strict=True))
            stack.pop()
        return self.known[value]
