"""Constants of an import that follow from the sizes of its inputs.

For example, the position of the next token is a constant in a model that was exported with the
keys of the earlier ones: their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.ir import Dense, Module, Op
from core_compiler.support.polynomial import NotPolynomial, fitted

#: The most elements of such a constant.
MOST = 4096


def find(
    modules: Sequence[Module], sizes: Sequence[int]
) -> tuple[tuple[int, ...], Callable[[int], tuple[np.ndarray, ...]]]:
    """Find the constants that differ between imports at some sizes.

    Return their places among main's ops, and their values at a size: the elements are polynomials
    of it. Raise NotPolynomial if there are others.
    """
    bodies = [module.main.body for module in modules]
    if any([op.kind for op in b.ops] != [op.kind for op in bodies[0].ops] for b in bodies):
        raise NotPolynomial("the imports have other ops")
    varying: list[int] = []
    functions: list[Callable[[int], np.ndarray]] = []
    for place, ops in enumerate(zip(*(b.ops for b in bodies), strict=True)):
        if ops[0].kind == "core.constant" and len({_content(op) for op in ops}) > 1:
            varying.append(place)
            functions.append(_fit(ops, sizes))
    return tuple(varying), lambda size: tuple(function(size) for function in functions)


def _content(op: Op) -> object:
    value = op.attributes["value"]
    return value.array().tobytes() if isinstance(value, Dense) else value.digest


def _fit(ops: Sequence[Op], sizes: Sequence[int]) -> Callable[[int], np.ndarray]:
    values = [op.attributes["value"] for op in ops]
    kind = values[0].type
    if any(not isinstance(v, Dense) or v.type != kind or kind.elements > MOST for v in values):
        raise NotPolynomial(f"a constant of type {kind} differs from size to size")
    arrays = [value.array() for value in values]
    if any(not np.array_equal(array, np.trunc(array)) for array in arrays):
        raise NotPolynomial("a constant that is not an integer differs from size to size")
    at = fitted(sizes, [[int(x) for x in array.reshape(-1)] for array in arrays])
    dtype, shape = arrays[0].dtype, arrays[0].shape
    return lambda size: np.array(at(size), dtype).reshape(shape)


def as_arguments(module: Module, places: Sequence[int]) -> Module:
    """Return the module with the constants at some places as main's last arguments."""
    body = module.main.body
    chosen = set(places)
    values = tuple(body.ops[place].result for place in places)
    ops = tuple(op for place, op in enumerate(body.ops) if place not in chosen)
    changed = body.with_(ops=ops, arguments=(*body.arguments, *values))
    return module.with_main(changed)
