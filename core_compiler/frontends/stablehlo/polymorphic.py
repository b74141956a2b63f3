"""Binding of a program's open sizes to numbers, by StableHLO's own shape refinement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.frontends.stablehlo.reading import NotSupported, dtype_of, first_message
from core_compiler.support.errors import UserError

#: Refine the types of arguments, then the sizes that follow from them; ops whose sizes were
#: operands become plain ones.
PIPELINE = (
    "builtin.module(stablehlo-refine-arguments{{types={types}}},stablehlo-refine-shapes,"
    "func.func(stablehlo-canonicalize-dynamism))"
)


def bind(
    module: Any, function: Any, where: str, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Bind the open sizes of ``function``'s arguments in place.

    Return each by its name (``input0_1``: axis 1 of the first argument) with its ``size`` and range
    ``low`` to ``high`` (-1: unbounded).  The size comes from ``inputs`` if they are passed, else
    from ``sizes``, else it is 1.
    """
    from jaxlib.mlir import ir

    arguments = list(function.regions[0].blocks[0].arguments)
    if inputs and len(inputs) != len(arguments):
        raise UserError(
            f"expected {len(arguments)} example inputs, got {len(inputs)}",
            where,
            "pass one for each argument",
        )
    bound: dict[str, dict[str, int]] = {}
    types = []
    for position, argument in enumerate(arguments):
        kind = argument.type
        if not isinstance(kind, ir.RankedTensorType):
            types.append(str(kind))
            continue
        given = inputs[position].shape if inputs else None
        if given is not None and len(given) != kind.rank:
            raise UserError(
                f"input {position} has rank {len(given)}, expected {kind.rank}",
                where,
                "pass an array of the expected rank",
            )
        shape = []
        for axis in range(kind.rank):
            if not kind.is_dynamic_dim(axis):
                shape.append(kind.get_dim_size(axis))
                continue
            name = f"input{position}_{axis}"
            size = int(given[axis] if given is not None else sizes.get(name, 1))
            bound[name] = {"size": size, "low": 0, "high": -1}
            shape.append(size)
        types.append(f"tensor<{''.join(f'{size}x' for size in shape)}{kind.element_type}>")
        try:
            dtype_of(kind.element_type)
        except NotSupported as problem:
            fix = "use real numbers: pass complex ones as two tensors"
            raise UserError(f"unsupported input {position}: {problem}", where, fix) from None
    if unknown := [name for name in sizes if name not in bound]:
        raise UserError(
            f"unknown size {unknown[0]!r}",
            where,
            f"sizes of the inputs: {', '.join(bound) or 'none'}",
        )
    if bound:
        _refine(module, types, where)
    return bound


def _refine(module: Any, types: Sequence[str], where: str) -> None:
    from jaxlib.mlir import passmanager
    from jaxlib.mlir.dialects import stablehlo

    stablehlo.register_stablehlo_passes()
    try:
        pipeline = passmanager.PassManager.parse(PIPELINE.format(types=",".join(types)))
        pipeline.run(module.operation)
    except Exception as problem:  # the bindings raise it for these sizes
        raise UserError(
            f"the program does not accept these sizes: {first_message(problem)}",
            where,
            "pass inputs of sizes that it accepts",
        ) from None
