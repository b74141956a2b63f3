"""The dtypes of mixed precision."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core_compiler.ir import DType, dtype
from core_compiler.support.errors import UserError, nearest

#: ``Training.precision`` -> the dtype in which values are stored.
PRECISIONS: Mapping[str, DType] = MappingProxyType({n: dtype(n) for n in ("f32", "bf16", "f16")})

#: Largest relative error of rounding to nearest, above the subnormals.
ROUNDING = MappingProxyType({dtype("bf16"): 2.0**-8, dtype("f16"): 2.0**-11})


def narrow_dtype(precision: str) -> DType:
    """Return the dtype of ``precision``; raise UserError for an unknown name."""
    if precision not in PRECISIONS:
        fix = nearest(str(precision), PRECISIONS, f"choose {', '.join(PRECISIONS)}")
        raise UserError(f"unknown precision {precision!r}", "precision", fix)
    return PRECISIONS[precision]
