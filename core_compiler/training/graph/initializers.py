"""Initial values of parameters, as in ``torch.nn.init``, if not those of the model.

Values are drawn by the contract's generator from the training seed, with one stream per parameter,
computed in f64 and rounded once to the parameter's dtype: the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from core_compiler.support import lazy_module
from core_compiler.support.errors import UserError, nearest

contraction = lazy_module.module("core_compiler.numerics.reference.contraction")
dtypes = lazy_module.module("core_compiler.numerics.reference.dtypes")
elementwise = lazy_module.module("core_compiler.numerics.reference.elementwise")
random = lazy_module.module("core_compiler.numerics.reference.random")

#: The random stream of the first parameter, above the streams of a model's random ops.
STREAM = 0xFFFE_0000
F64 = np.dtype(np.float64)


@dataclass(frozen=True)
class RandomNumbers:
    """The random numbers of one parameter: f64 of its shape."""

    shape: tuple[int, ...]
    seed: int
    stream: int

    def uniform(self, low: float, high: float) -> np.ndarray:
        drawn = random.uniform(self.shape, self.seed, self.stream)
        return low + (high - low) * dtypes.cast(drawn, F64)

    def normal(self, mean: float, std: float) -> np.ndarray:
        drawn = random.normal(self.shape, self.seed, self.stream)
        return mean + std * dtypes.cast(drawn, F64)


class Initializer:
    """The base class of initialisers; ``rank`` is the minimum number of axes of a parameter."""

    rank: ClassVar[int] = 0

    def draw(self, numbers: RandomNumbers) -> np.ndarray:
        """Return f64 of the shape of ``numbers``; raise UserError for an unsupported shape."""
        raise NotImplementedError

    def values(
        self, shape: Sequence[int], dtype: np.dtype, seed: int = 0, ordinal: int = 0
    ) -> np.ndarray:
        """Return ``dtype[*shape]`` for the parameter with this ``ordinal`` in its model."""
        if 0 in shape:
            return np.zeros(shape, dtype)
        made = self.draw(RandomNumbers(tuple(shape), seed, STREAM + ordinal))
        return dtypes.cast(made, np.dtype(dtype))


@dataclass(frozen=True)
class Constant(Initializer):
    """The same ``value`` for all elements."""

    value: float = 0.0

    @override
    def draw(self, numbers):
        return np.full(numbers.shape, self.value, F64)


@dataclass(frozen=True)
class Uniform(Initializer):
    """A uniform distribution between ``low`` and ``high``."""

    low: float = 0.0
    high: float = 1.0

    @override
    def draw(self, numbers):
        return numbers.uniform(self.low, self.high)


@dataclass(frozen=True)
class Normal(Initializer):
    mean: float = 0.0
    std: float = 1.0

    @override
    def draw(self, numbers):
        return numbers.normal(self.mean, self.std)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """A normal distribution truncated to ``low`` and ``high``, by the inverse of its CDF."""

    mean: float = 0.0
    std: float = 1.0
    low: float = -2.0
    high: float = 2.0

    @override
    def draw(self, numbers):
        ends = np.array([self.low, self.high], F64)
        low, high = elementwise.apply("erf", (ends - self.mean) / (self.std * math.sqrt(2)))
        if not low < high:
            raise UserError(
                f"{self} has no values between its bounds",
                "initialize",
                "pass bounds nearer to the mean, the lower one first",
            )
        made = self.mean + self.std * math.sqrt(2) * inverse_erf(numbers.uniform(low, high))
        return np.clip(made, self.low, self.high)


class _Scaled(Initializer):
    """The base class of initialisers that scale by the fan-in and fan-out of a weight.

    The axes are those of torch's layers (for Keras use ``input_axis=-2, output_axis=-1``); all
    other axes are positions.
    """

    rank = 2
    input_axis: int
    output_axis: int

    def fans(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return (fan-in, fan-out)."""
        rank, elements = len(shape), prod(shape)
        if not all(-rank <= a < rank for a in (self.input_axis, self.output_axis)):
            raise UserError(
                f"the axes of {self} are out of range for a parameter {list(shape)}",
                "initialize",
                "pass axes that the parameter has",
            )
        return elements // shape[self.output_axis], elements // shape[self.input_axis]

    def std(self, shape: Sequence[int]) -> float:
        raise NotImplementedError


class _AsUniform(_Scaled):
    @override
    def draw(self, numbers):
        bound = math.sqrt(3) * self.std(numbers.shape)
        return numbers.uniform(-bound, bound)


class _AsNormal(_Scaled):
    @override
    def draw(self, numbers):
        return numbers.normal(0.0, self.std(numbers.shape))


@dataclass(frozen=True)
class _Xavier(_Scaled):
    """Glorot and Bengio (2010): the variance is gain^2 * 2 / (inputs + outputs)."""

    gain: float = 1.0
    input_axis: int = 1
    output_axis: int = 0

    @override
    def std(self, shape):
        return self.gain * math.sqrt(2 / sum(self.fans(shape)))


class XavierUniform(_Xavier, _AsUniform):
    pass


class XavierNormal(_Xavier, _AsNormal):
    pass


#: The gain of each nonlinearity, which preserves the standard deviation in the next layer.
GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
LEAKY = "leaky_relu"


@dataclass(frozen=True)
class _Kaiming(_Scaled):
    """He et al. (2015): the standard deviation is gain / sqrt(fan), with the fan of ``mode``.

    ``nonlinearity`` is the function after the layer, ``a`` the slope of a leaky ReLU.
    """

    a: float = 0.0
    mode: str = "fan_in"
    nonlinearity: str = LEAKY
    input_axis: int = 1
    output_axis: int = 0

    def __post_init__(self) -> None:
        rows = (
            ("mode", self.mode, ("fan_in", "fan_out")),
            ("nonlinearity", self.nonlinearity, (*GAINS, LEAKY)),
        )
        for what, given, known in rows:
            if given not in known:
                raise UserError(
                    f"unknown {what} {given!r}",
                    "initialize",
                    nearest(given, known, f"choose {', '.join(known)}"),
                )

    @override
    def std(self, shape):
        leaky = math.sqrt(2 / (1 + self.a * self.a))
        gain = leaky if self.nonlinearity == LEAKY else GAINS[self.nonlinearity]
        return gain / math.sqrt(self.fans(shape)[self.mode == "fan_out"])


class KaimingUniform(_Kaiming, _AsUniform):
    pass


class KaimingNormal(_Kaiming, _AsNormal):
    pass


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """Saxe et al. (2013): orthogonal rows of length ``gain``, or columns if there are fewer.

    All axes after the first count as columns.
    """

    rank = 2
    gain: float = 1.0

    @override
    def draw(self, numbers):
        drawn = numbers.normal(0.0, 1.0).reshape(numbers.shape[0], -1)
        wide = drawn.shape[0] < drawn.shape[1]
        made = orthonormal(drawn.T if wide else drawn)
        return self.gain * (made.T if wide else made).reshape(numbers.shape)


#: Name -> initialiser with torch's defaults.
INITIALIZERS: Mapping[str, Initializer] = {
    "zeros": Constant(0.0),
    "ones": Constant(1.0),
    "uniform": Uniform(),
    "normal": Normal(),
    "trunc_normal": TruncatedNormal(),
    "xavier_uniform": XavierUniform(),
    "xavier_normal": XavierNormal(),
    "kaiming_uniform": KaimingUniform(),
    "kaiming_normal": KaimingNormal(),
    "orthogonal": Orthogonal(),
}


def initializer(what: Any) -> Initializer:
    """Return an initialiser, given as itself, by name, or as a number for all elements."""
    if isinstance(what, int | float) and not isinstance(what, bool):
        return Constant(float(what))
    if isinstance(what, Initializer):
        return what
    if what not in INITIALIZERS:
        known = ", ".join(INITIALIZERS)
        raise UserError(
            f"unknown initializer {what!r}",
            "initialize",
            nearest(str(what), INITIALIZERS, f"choose {known}"),
        )
    return INITIALIZERS[what]


def initializer_rows(given: Any) -> tuple[tuple[str, Initializer], ...]:
    """Return patterns with their initialisers, from a mapping or pairs."""
    if isinstance(given, str):
        raise UserError(
            f"expected initialize to map names of parameters, got {given!r}",
            "training",
            f"pass {{'*.weight': {given!r}}}",
        )
    rows = given.items() if isinstance(given, Mapping) else given
    return tuple((pattern, initializer(how)) for pattern, how in rows)


def match_initializers(
    rows: Sequence[tuple[str, Initializer]],
    ranks: Mapping[str, int],
    tied: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Initializer]:
    """Map each parameter to the initialiser of the first pattern that matches its name.

    ``ranks`` has the number of axes of each parameter; ``tied`` has all names of a parameter with
    several. Raise UserError for a pattern without a match, and for parameters with too few axes.
    """
    made: dict[str, Initializer] = {}
    for pattern, how in rows:
        found = [n for n in ranks if any(fnmatch(each, pattern) for each in tied.get(n, (n,)))]
        if not found:
            raise UserError(
                f"no trained parameter matches {pattern!r}",
                "initialize",
                f"choose from the parameters {_list_names(ranks)}",
            )
        for name in found:
            made.setdefault(name, how)
    flat = [name for name, how in made.items() if ranks[name] < how.rank]
    if flat:
        raise UserError(
            f"{type(made[flat[0]]).__name__} needs input and output axes, which are missing "
            f"in {_list_names(flat)}",
            "initialize",
            f"put an entry for them first, such as {flat[0]!r}: 'ones'",
        )
    return made


def _list_names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (" ..." if len(listed) > 8 else "")


# --- functions ----------------------------------------------------------------------------------


def inverse_erf(y: np.ndarray) -> np.ndarray:
    """Return x with erf(x) = y for f64 y, |y| <= 1.

    Winitzki's approximation (2008) is refined by Halley's steps, each of which triples the digits.
    """
    edge = 1 - 2.0**-53
    y = np.clip(y, -edge, edge)
    logarithm = elementwise.apply("log", 1 - y * y)
    middle = 2 / (math.pi * 0.147) + logarithm / 2
    x = np.copysign(np.sqrt(np.sqrt(middle * middle - logarithm / 0.147) - middle), y)
    for _ in range(3):
        slope = 2 / math.sqrt(math.pi) * elementwise.apply("exp", -x * x)
        step = (elementwise.apply("erf", x) - y) / slope
        x = x - step / (1 + x * step)
    return x


#: Number of columns that one product makes orthogonal to all earlier ones.
_PANEL = 32


def orthonormal(a: np.ndarray) -> np.ndarray:
    """Return Q of A = QR with a positive diagonal of R, for f64 [n, k] of rank k <= n.

    Gram-Schmidt by panels of columns, with each projection done twice, which is enough (Giraud et
    al., 2005). Products have the contract's order, so the bits are the same everywhere.
    """
    q = np.zeros((a.shape[0], 0), F64)
    for start in range(0, a.shape[1], _PANEL):
        panel = _remove_projection(_remove_projection(a[:, start : start + _PANEL], q), q)
        basis = np.zeros((a.shape[0], 0), F64)
        for index in range(panel.shape[1]):
            column = _remove_projection(
                _remove_projection(panel[:, index : index + 1], basis), basis
            )
            length = np.sqrt(_product(column.T, column))
            basis = np.concatenate([basis, column / length], axis=1)
        q = np.concatenate([q, basis], axis=1)
    return q


def _remove_projection(columns: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return ``columns`` minus their projection on the span of ``q``."""
    return columns - _product(q, _product(q.T, columns)) if q.shape[1] else columns


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return contraction.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))
