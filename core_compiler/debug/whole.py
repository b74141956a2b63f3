"""Comparison of a model's results as a whole with those of a program or a framework.

The bounds come from the import in f64, and from the effect of an ulp of inputs and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from core_compiler.debug.alone import (
    KEPT,
    ResultsRounded,
    moved,
    nearby,
    random_values,
    terms,
)
from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import SEEDS
from core_compiler.debug.equal_elements import are_ties, finder
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.metric import distance, epsilon
from core_compiler.debug.verdict import EACH_ULPS, MARGIN, VAGUE, Evidence, Judgement, judge
from core_compiler.debug.wide import F64Evaluator, widened
from core_compiler.ir import Block, Module, Op
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ops.base import TypeRuleError
from core_compiler.support.errors import InternalError

#: Errors of evaluating an import if one of its ops has no reference, or none in f64.
_NO_MEANING = (InternalError, KeyError, TypeRuleError)


class Whole:
    """The results of an import in f64, and with inputs and weights moved."""

    def __init__(self, module: Module, inputs: Sequence[np.ndarray]):
        self._module, self._inputs = module, [np.asarray(a) for a in inputs]
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        self._results = cache(self._evaluated)
        self._rounded = cache(
            lambda seed, most, size: self._evaluated(
                None, within=ResultsRounded(self._evaluator, seed, most, size)
            )
        )
        self._nearby = cache(self._evaluated_nearby)
        self._by_references = cache(
            lambda: list(self._evaluator.block(module.main.body, self._inputs))
        )

    def evidence(
        self,
        index: int,
        others: Callable[[], Sequence[np.ndarray]] = lambda: (),
        same_algebra: bool = False,
        counted: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = list,
    ) -> Evidence:
        """Return the evidence for the result at ``index``; see :func:`judge_results`."""

        def truth() -> np.ndarray | None:
            try:
                return counted(self._results(None))[index]
            except _NO_MEANING:
                return None

        def moved(seed: int, zeros: bool = True) -> np.ndarray:
            return counted(self._results(seed, zeros))[index]

        kind = self._module.main.outputs[index].type.dtype
        ulp = epsilon(kind.numpy) if kind.is_float else 0.0

        def near(seed: int) -> tuple[np.ndarray, np.ndarray]:
            own, wide = self._nearby(seed)
            return counted(own)[index], counted(wide)[index]

        return Evidence(
            truth,
            moved,
            others=others,
            same_algebra=same_algebra,
            own=lambda: self.own(index, counted),
            terms=lambda: terms(self._module.main.body.ops),
            rounded=lambda seed, size: counted(self._rounded(seed, ulp, size))[index],
            nearby=near,
        )

    def own(
        self,
        index: int,
        counted: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = list,
    ) -> np.ndarray | None:
        """Return the result at ``index`` by the references, or None if an op has none.

        Exact passes keep it bit for bit.
        """
        try:
            return counted(self._by_references())[index]
        except _NO_MEANING:
            return None

    def _evaluated_nearby(self, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        move = nearby(seed)
        inputs, body = [move(a) for a in self._inputs], self._module.main.body
        wide = F64Evaluator(self._evaluator).block(body, [widened(a) for a in inputs])
        return list(self._evaluator.block(body, inputs)), list(wide)

    def _evaluated(
        self, seed: int | None, zeros: bool = True, within: F64Evaluator | None = None
    ) -> list[np.ndarray]:
        move = widened if seed is None else moved(seed, zeros)
        wide, body, known = within or F64Evaluator(self._evaluator), self._module.main.body, {}
        for op in body.ops:
            if op.kind in CONSTANTS:
                array = self._evaluator.op(op, ())[0]
                # A scalar belongs to a formula: 1 is exactly 1.
                known[op.results[0]] = move(array) if array.size > 1 else widened(array)
        return list(wide.block(body, [move(a) for a in self._inputs], known=known))


def judge_results(
    module: Module,
    inputs: Sequence[np.ndarray],
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
    others: Callable[[], Sequence[Sequence[np.ndarray]]],
    counted: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = list,
    nodes_right: bool = False,
) -> list[Judgement]:
    """Return the verdict on each result of a program made from ``module``, against a framework's.

    If more than a few ulps differ, a result is also compared with the references' results of
    ``module``: by their bits, or as another program's.  ``nodes_right``: each node of the import is
    right alone (:func:`compare`), so a program with the import's bits is right.  ``counted`` maps
    main's results to those that are compared.  ``others``: the framework's results on inputs moved
    by an ulp.
    """
    whole, drawn = Whole(module, inputs), random_values(module)
    moved_results = cache(others)

    def judged(index: int, our_result: np.ndarray, their_result: np.ndarray) -> Judgement:
        random = module.main.outputs[index] in drawn
        if random:
            found = Judgement("not_compared", note="it depends on random numbers")
        else:
            evidence = whole.evidence(index, partial(_each, moved_results, index), counted=counted)
            found = judge(their_result, our_result, evidence)
        if found.verdict == "differs" and _are_near_ties(
            module, inputs, index, our_result, their_result
        ):
            note = "positions of values that rounding may make equal"
            found = replace(found, verdict="within", note=note)
        if found.verdict == "equal" or _is_near(found, our_result):
            return found
        own = whole.own(index, counted)
        if own is None:
            return found
        if same_bits(own, our_result):
            if found.verdict == "differs" and nodes_right:
                note = "the bits of the import, whose nodes are each correct alone"
                found = replace(found, verdict="within", note=note)
            return replace(found, kept=True)
        if found.verdict == "differs" or random:
            return found
        against_import = judge(own, our_result, whole.evidence(index, counted=counted))
        if against_import.verdict == "differs":
            return replace(against_import, note=f"compared with the import: {against_import.note}")
        return found

    return [
        judged(index, our_result, their_result)
        for index, (our_result, their_result) in enumerate(zip(ours, theirs, strict=True))
    ]


def _are_near_ties(
    module: Module, inputs: Sequence[np.ndarray], index: int, ours: np.ndarray, theirs: np.ndarray
) -> bool:
    """Return whether a result of positions differs from the framework's only at near ties.

    The elements at these positions are as close to each other as earlier rounding may bring them.
    """
    if ours.dtype.kind not in "iu":
        return False
    makers = {v: op for op in module.main.body.ops for v in op.results}
    chain = finder(module.main.outputs[index], makers.get)
    if not chain or not chain[0].operands[0].type.dtype.is_float:
        return False
    main = module.main
    body = Block(main.arguments, main.body.ops, (chain[0].operands[0],))
    whole = Whole(module.with_function(main.with_(body=body)), inputs)
    x, evidence = whole.own(0), whole.evidence(0)
    truth = evidence.truth()
    if x is None or truth is None:
        return False
    condition = max(distance(truth, evidence.moved(seed)).relative for seed in range(SEEDS))
    tolerance = MARGIN * max(epsilon(x.dtype), condition)
    top = float(np.max(np.abs(truth), where=np.isfinite(truth), initial=0.0))
    return are_ties(chain, x, ours, theirs, min(tolerance, VAGUE) * top)


def judge_state(
    module: Module, inputs: Sequence[np.ndarray], final_state: Sequence[np.ndarray]
) -> dict[int, Judgement]:
    """Return the verdict on each part of the state after a call of a program on ``inputs``.

    ``final_state`` is that state, ``module`` the import that it is compared with; the keys are
    positions in ``main.outputs``.  Parts that depend on random numbers or have no reference are
    left out.
    """
    whole, drawn = Whole(module, inputs), random_values(module)
    aliases = module.main.attributes.get("aliases", ())
    found = {}
    for (index, _), our_state in zip(aliases, final_state, strict=True):
        own = None if module.main.outputs[index] in drawn else whole.own(index)
        if own is not None:
            found[index] = judge(own, our_state, whole.evidence(index))
    return found


def _is_near(found: Judgement, ours: np.ndarray) -> bool:
    """Return whether floats are so close to the framework's that no further check is needed."""
    return (
        found.verdict == "within"
        and ours.dtype.kind not in "biu"
        and found.distance.relative <= EACH_ULPS * epsilon(ours.dtype)
    )


def _each(results_of: Callable[[], Sequence[Sequence[np.ndarray]]], index: int) -> list[np.ndarray]:
    return [results[index] for results in results_of()]


def moved_inputs(inputs: Sequence[np.ndarray], seeds: int = SEEDS) -> list[list[np.ndarray]]:
    """Return ``inputs`` with every float moved by up to an ulp of its dtype, for each seed."""
    made = []
    for seed in range(seeds):
        move = moved(seed)
        made.append([move(a).astype(a.dtype) for a in inputs])
    return made


def maker(module: Module, index: int) -> Op | None:
    """Return the op that defines a result of ``main``, or None for an input that is passed on."""
    value = module.main.outputs[index]
    return next((op for op in module.main.body.ops if value in op.results), None)
