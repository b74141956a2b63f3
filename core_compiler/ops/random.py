"""Random numbers: Philox4x32-10 of seed, stream, iteration, loop trip and element index.

The index is that of the whole batch's tensor, of which a ``shard`` draws its own rows (the first
axis is the batch's). Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the
counter and the conversions are in the numerics contract.
"""

from __future__ import annotations

from math import prod

from core_compiler.ir import DType, dtype, tensor
from core_compiler.ops import hooks
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import CONSTANT
from core_compiler.ops.precision import RANDOM_VALUES
from core_compiler.ops.rules import F32, FLOATS, INTEGERS, need, need_dtype, need_rank
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

dtypes = lazy_module.module("core_compiler.numerics.reference.dtypes")
random = lazy_module.module("core_compiler.numerics.reference.random")

UI32 = dtype("ui32")
_OPERANDS = ("seed", "iteration", "shard", "trip")
#: Integer operations of Philox per 32-bit word: ten rounds of 4 multiplies and 4 xors, key
#: additions.
_WORD = 25


def _rule(allowed):
    def rule(types, attributes):
        for name, value in zip(_OPERANDS, types, strict=False):
            need_rank(name, value, 0)
            need_dtype(name, value, INTEGERS)
        need_dtype("dtype", attributes["dtype"], allowed)
        need(0 <= attributes["stream"] < 2**32, f"stream {attributes['stream']} is not 32 bits")
        return (tensor(attributes["shape"], attributes["dtype"]),)

    return rule


def _attributes(default: DType) -> dict[str, Attr]:
    return {
        "shape": Attr(tuple, doc="the result's shape", of=(int, str)),
        "dtype": Attr(DType, default, "the result's dtype"),
        "stream": Attr(int, doc="index of the op among the model's random ops; clones keep it"),
    }


def _reference(generate: str):
    def reference(arrays, attributes, types):
        seed, iteration, shard, trip = (int(a) for a in (*arrays, 0, 0, 0)[:4])
        shape = types[0].shape
        made = getattr(random, generate)(
            shape, seed, attributes["stream"], iteration, trip, first=shard * prod(shape)
        )
        return (dtypes.cast(made, types[0].dtype.numpy),)

    return reference


#: Columns: name, meaning, dtypes, default dtype, operations per element, reference.
RANDOM = (
    ("random_bits", "32 random bits per element", (UI32,), UI32, _WORD, "random_bits"),
    (
        "random_uniform",
        "Uniform in [0, 1): 24 random bits times 2^-24, rounded to the dtype",
        FLOATS,
        F32,
        _WORD + 2,
        "uniform",
    ),
    (
        "random_normal",
        "Standard normal (Box-Muller in f32), rounded to the dtype",
        FLOATS,
        F32,
        _WORD + 6,
        "normal",
    ),
)


def _flops(each: int):
    return lambda op: each * op.result.type.elements


for _name, _summary, _allowed, _default, _each, _generate in RANDOM:
    declare(
        OpDef(
            f"core.{_name}",
            _summary,
            ("seed", "iteration?", "shard?", "trip?"),
            _rule(_allowed),
            _reference(_generate),
            attributes=_attributes(_default),
            flops=_flops(_each),
            traits=traits("random"),
            precision=RANDOM_VALUES if _default.is_float else None,
            lower=hooks.Custom("random"),
            gradient=CONSTANT,
        )
    )
