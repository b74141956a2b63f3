"""Constants of a module that follow from the sizes of its inputs.

For example, the position of the next token is a constant in a model that was exported with the
keys of the earlier ones: their number; a mean divides by the number of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Dense, Module, Op
from core_compiler.passes.base import Pass
from core_compiler.support.polynomial import NotPolynomial, fitted

#: The pass after which all such constants are ops of main: composites are primitive ops.
AFTER = "lower_composites"
#: The most elements of such a constant.
MOST = 4096


def find(modules: Sequence[Module]) -> tuple[int, ...]:
    """Return the places, among main's ops, of the constants that differ between imports.

    Raise NotPolynomial if the imports differ otherwise.
    """
    bodies = [module.main.body for module in modules]
    if any([op.kind for op in b.ops] != [op.kind for op in bodies[0].ops] for b in bodies):
        raise NotPolynomial("the imports have other ops")
    varying = []
    for place, ops in enumerate(zip(*(b.ops for b in bodies), strict=True)):
        if ops[0].kind == "core.constant" and len({_content(op) for op in ops}) > 1:
            values = [op.attributes["value"] for op in ops]
            kind = values[0].type
            if any(not isinstance(v, Dense) or v.type != kind for v in values):
                raise NotPolynomial(f"a constant of type {kind} differs from size to size")
            varying.append(place)
    return tuple(varying)


def values(module: Module, places: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Return the constants at some places."""
    return tuple(module.main.body.ops[place].attributes["value"].array() for place in places)


def fit(
    modules: Sequence[Module], places: Sequence[int], sizes: Sequence[int]
) -> Callable[[int], tuple[np.ndarray, ...]]:
    """Return the constants as a function of the size: their elements are polynomials of it.

    Raise NotPolynomial if there are others.
    """
    columns = zip(*(values(module, places) for module in modules), strict=True)
    functions = [_fit(arrays, sizes) for arrays in columns]
    return lambda size: tuple(function(size) for function in functions)


def _content(op: Op) -> object:
    value = op.attributes["value"]
    return value.array().tobytes() if isinstance(value, Dense) else value.digest


def _fit(arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> Callable[[int], np.ndarray]:
    if arrays[0].size > MOST or any(not np.array_equal(a, np.trunc(a)) for a in arrays):
        raise NotPolynomial("a constant of other numbers than a few integers")
    at = fitted(sizes, [[int(x) for x in array.reshape(-1)] for array in arrays])
    dtype, shape = arrays[0].dtype, arrays[0].shape
    return lambda size: np.array(at(size), dtype).reshape(shape)


@dataclass(frozen=True)
class SizesAsArguments(Pass):
    """Make the constants at some places, among the ops of main, its last arguments.

    The program then takes what follows from a size beside the model's inputs, and is the same for
    other sizes.
    """

    half = "meaning"
    places: tuple[int, ...] = ()

    @override
    def run(self, module, context):
        body = module.main.body
        chosen = set(self.places)
        given = tuple(body.ops[place].result for place in self.places)
        ops = tuple(op for place, op in enumerate(body.ops) if place not in chosen)
        return module.with_main(body.with_(ops=ops, arguments=(*body.arguments, *given)))


@dataclass(frozen=True)
class LoweredSizesAsArguments(SizesAsArguments):
    """The same for the constants that composites have become."""

    half = "implementation"
