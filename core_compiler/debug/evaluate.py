"""Evaluating any stage on real tensors by the reference, with sharing and a bound on memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from core_compiler.debug.divisions import divides_integers
from core_compiler.ir import Block, Function, Op, Value, WeightStore, attributes_key
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ops.base import definition, evaluate
from core_compiler.passes.base import CONTROL_FLOW


class Evaluator:
    """Evaluates ops, with results shared by identity of inputs and a bound (``keep_bytes``) on the
    bytes of results that are kept; their inputs are kept with them, up to as much again.

    Two ops of the same kind and attributes on the very same arrays give the same arrays back, so
    that a rewrite which only regroups ops costs nothing to check.
    """

    def __init__(
        self, weights: WeightStore, keep_bytes: int = 2 << 30,
        functions: Mapping[str, Function] | None = None,
    ):  # fmt: skip
        self.weights, self.keep_bytes = weights, keep_bytes
        self.functions = functions or {}  # which ops of a frontend's level may call
        #: Integer divisions that met divisors of 0: how many of how many elements, at the worst.
        self.zero_divisors: dict[Op, tuple[int, int]] = {}
        self._memo: OrderedDict[tuple, tuple[tuple, tuple]] = OrderedDict()
        self._bytes = 0

    def op(
        self, op: Op, arrays: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """The results of one op (a group or a launch by its region); ``outer`` holds the values
        around it that its regions read."""
        if op.kind in MEANING_IN_REGION:
            return self.block(op.regions[0], arrays)
        if op.kind.startswith("onnx."):
            from core_compiler.onnx_level.evaluate import evaluate as evaluate_onnx

            return evaluate_onnx(op, arrays, self.weights, outer or {}, self.functions)
        if op.kind in CONTROL_FLOW:
            execute = definition(op).execute
            assert execute is not None
            return tuple(execute(op, list(arrays), lambda b, given: self.block(b, given, outer)))
        if op.regions:
            return evaluate(op, arrays, self.weights, outer)
        if divides_integers(op) and not arrays[1].all():
            size = arrays[1].size
            met = size - int(np.count_nonzero(arrays[1])), size
            self.zero_divisors[op] = max(self.zero_divisors.get(op, met), met)
        key = (op.kind, attributes_key(op.attributes.items()), tuple(map(id, arrays)))
        found = self._memo.get(key)
        if found is not None:
            self._memo.move_to_end(key)
            return found[1]
        declared = definition(op)
        if declared.reference is None and declared.decompose is not None:
            from core_compiler.ops.builder import decomposed

            results = self.block(decomposed(op), arrays)
        else:
            results = evaluate(op, arrays, self.weights)
        # The inputs are kept with the results, so that no id is reused while the entry lives.
        self._memo[key] = (tuple(arrays), results)
        self._bytes += sum(r.nbytes for r in results)
        while self._bytes > self.keep_bytes and len(self._memo) > 1:
            _, (_, old) = self._memo.popitem(last=False)
            self._bytes -= sum(r.nbytes for r in old)
        return results

    def block(
        self, block: Block, arrays: Sequence[np.ndarray],
        outer: Mapping[Value, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """The outputs of a block; ``outer`` holds the values around it that it reads."""
        values = {**(outer or {}), **dict(zip(block.arguments, arrays, strict=True))}
        run_block(block, values, self)
        return tuple(values[v] for v in block.outputs)


def run_block(block: Block, values: dict[Value, np.ndarray], evaluator: Evaluator) -> None:
    """Evaluate every op of ``block`` into ``values``."""
    for op in block.ops:
        results = evaluator.op(op, [values[v] for v in op.operands], values)
        values.update(zip(op.results, results, strict=True))


class Recorded(Protocol):
    """The tensors of values, as :class:`Values` and mappings have them."""

    def __getitem__(self, value: Value, /) -> Any: ...


class Values:
    """The tensors of values across stages: evaluated when asked, from the ops that make them.

    A value keeps its meaning for ever, so the first op seen that makes it may serve.  ``inputs``
    binds the arguments of ``main``.  Values inside control flow are those of a loop's first
    iteration and of a branch as if it were taken: its arguments are what it is given.
    """

    def __init__(self, evaluator: Evaluator, inputs: Mapping[Value, np.ndarray]):
        self.evaluator = evaluator
        self.known: dict[Value, np.ndarray] = dict(inputs)
        self.makers: dict[Value, Op] = {}
        self.given: dict[Value, Value] = {}

    def learn(self, ops) -> None:
        """Take note of ops whose results may be asked for, and of those inside control flow."""
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
        """Drop tensors of values outside ``keep``; they are evaluated again when asked for."""
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
                raise KeyError(f"no op is known that makes {current}")
            missing = [v for v in op.uses() if v not in self.known]
            if missing:
                stack.extend(reversed(missing))
                continue
            arrays = [self.known[v] for v in op.operands]
            results = self.evaluator.op(op, arrays, self.known)
            self.known.update(zip(op.results, results, strict=True))
            stack.pop()
        return self.known[value]
