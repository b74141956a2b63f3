"""Conversion of pairs of ONNX nodes to pairs of the ops that they are imported as.

A rewrite of nodes is thus tried on the same values as any other, by the semantics of the import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from core_compiler.ir import TensorType, Value, as_array
from core_compiler.onnx_level.dialect import constant
from core_compiler.onnx_level.evaluate import imported
from core_compiler.support.errors import InternalError

if TYPE_CHECKING:
    from core_compiler.debug.adversarial import Pair


def as_imported(pair: Pair) -> Pair | None:
    """Return the pair of ops that the nodes of ``pair`` are imported as, or None if they cannot be.

    Constants that the rewrite computed are inputs of the pair, as they may be off by an ulp, unless
    they must be known at import (a size, say).
    """
    held = ((op.results[0], constant(op)) for op in pair.rewrite.new)
    computed = {
        v: as_array(h, pair.weights)
        for v, h in held
        if h is not None and isinstance(v.type, TensorType) and v.type.dtype.is_float
    }
    try:
        try:
            return _imported(pair, computed)
        except InternalError:
            if not computed:
                raise
            return _imported(pair, {})
    except InternalError:
        return None


def _imported(pair: Pair, computed: Mapping[Value, np.ndarray]) -> Pair:
    adversary = pair.adversary
    weights = pair.weights.only(list(pair.weights))
    stored = {}
    for value, array in pair.fixed.items():
        maker = adversary.maker(value)
        stored[value] = constant(maker) or weights.add(array)
    arguments = (*pair.free, *computed)
    functions = adversary.values.evaluator.functions
    bodies = []
    for side, ops in enumerate((pair.old, pair.new)):
        own = [op for op in ops if computed.keys().isdisjoint(op.results)]
        results = [values[side] for values in pair.values]
        module = imported(own, results, arguments, stored, weights, functions)
        bodies.append(module.main.body)
        for digest in module.weights:
            weights.put(digest, module.weights[digest])
    old, new = bodies
    shared = dict(zip(new.arguments, old.arguments, strict=True))
    free = old.arguments[: len(pair.free)]
    given = old.arguments[len(pair.free) :]
    return replace(
        pair,
        old=old.ops,
        new=tuple(op.substitute(shared) for op in new.ops),
        values=tuple(zip(old.outputs, (shared.get(v, v) for v in new.outputs), strict=True)),
        free=free,
        fixed=dict(zip(given, computed.values(), strict=True)),
        weights=weights,
        computed=frozenset(given),
        nodes=pair,
        origin={
            **dict(zip(old.arguments, arguments, strict=True)),
            **{made: value for made, (value, _) in zip(old.outputs, pair.values, strict=True)},
        },
    )
