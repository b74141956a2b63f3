"""What a sample is: an op on real operands beside an oracle that nobody here wrote."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.ir import Block, DType, Op, Value, dtype, tensor
from core_compiler.ops import Builder, definition

#: Largest |found - wanted| / max|wanted| where rounding differs from the oracle's f64.
TOLERANCE = {"f64": 1e-12, "f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}
FLOATS = tuple(TOLERANCE)


@dataclass(frozen=True)
class Sample:
    """``kind`` on ``operands``; ``oracle(*operands)`` gives the results, floats computed in f64.

    ``exact`` asks for equal bits (NaN equals NaN), else the error is at most ``slack`` times the
    result dtype's tolerance, relative to the largest wanted magnitude.
    """

    kind: str
    operands: tuple[np.ndarray, ...]
    oracle: Callable[..., Any] | None
    attributes: dict[str, Any] = field(default_factory=dict)
    exact: bool = False
    slack: float = 1.0
    regions: Callable[[], Sequence[Block]] | None = None
    label: str = ""

    def __str__(self) -> str:
        kinds = "-".join(dict.fromkeys(dtype(a.dtype).name for a in self.operands))
        return "-".join(filter(None, (self.kind.split(".")[1], self.label, kinds)))

    def op(self) -> Op:
        """The op, type-checked, on fresh values of the operands' types."""
        builder = Builder()
        values = [Value(tensor(a.shape, a.dtype)) for a in self.operands]
        regions = self.regions() if self.regions else ()
        builder.op(self.kind, values, regions=regions, **self.attributes)
        return builder.ops[-1]

    def wanted(self) -> tuple[np.ndarray, ...]:
        """The oracle's results on the operands; floats are widened unless the sample is exact."""
        operands = self.operands if self.exact else [wide(a) for a in self.operands]
        with np.errstate(all="ignore"):
            made = self.oracle(*operands)
        return tuple(map(np.asarray, made if isinstance(made, tuple) else (made,)))


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if dtype(array.dtype).is_float else array


def generator(*key: object) -> np.random.Generator:
    """A generator that depends on ``key`` alone."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def values(shape: Sequence[int], kind: str = "f32", low=-2.0, high=2.0, key: object = 0):
    """Uniform values of a dtype; integers include ``high``."""
    found: DType = dtype(kind)
    random = generator(tuple(shape), kind, low, high, key)
    if found.kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    if found.is_integer:
        low = max(int(low), 0) if found.kind == "uint" else int(low)
        home = np.uint64 if found.kind == "uint" else np.int64
        return random.integers(low, int(high), shape, home, endpoint=True).astype(found.numpy)
    return random.uniform(low, high, shape).astype(found.numpy)


def sample(kind: str, *operands, oracle, label="", exact=False, slack=1.0, **attributes) -> Sample:
    return Sample(f"core.{kind}", operands, oracle, attributes, exact, slack, None, label)


def in_floats(kind: str, *operands, oracle, dtypes=FLOATS, label="", slack=1.0, **attributes):
    """One sample for each float dtype: f32 operands are rounded to it, others stay."""
    made = []
    for name in dtypes:
        cast = [a.astype(dtype(name).numpy) if a.dtype == np.float32 else a for a in operands]
        made.append(
            sample(
                kind,
                *cast,
                oracle=oracle,
                label=f"{label or kind}-{name}",
                slack=slack,
                **attributes,
            )
        )
    return made


def torch_oracle(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of torch tensors as an oracle on arrays."""

    def oracle(*arrays):
        import torch

        made = function(*(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays))
        if isinstance(made, torch.Tensor):
            return made.numpy()
        return tuple(t.numpy() for t in made)

    return oracle


def is_composite(kind: str) -> bool:
    return definition(kind).decompose is not None
