"""Checks of the elementary functions used by a compile, against the error bounds of the contract.

The functions of ``kernels.functions`` are one source that the reference and every target share, so
comparing two stages does not reveal a wrong coefficient.  Each function that a kernel calls is
therefore evaluated on values of all sizes and on special ones, and compared with NumPy in a wider
format.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.debug.remembered import PassedChecks
from core_compiler.ir import DType, Module, Op, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.kernel_ir.scalars import code_name
from core_compiler.numerics.reference.elementwise import apply

#: The kind of these checks.
KIND = "function"
_SOURCES = (
    "numerics/functions*.py",
    "numerics/primitives.py",
    "numerics/jit.py",
    "numerics/reference/elementwise.py",
    "debug/elementary.py",
)
#: Maximum error of an oracle, in ulps of its own format.
_ORACLE = 4.0
#: An f64 function may lose digits near the least normal value (an f32 function must not).
_LOST = 64.0
#: Number of values of each kind that a function is tried on.
_COUNT = 1 << 14
#: Kernel ops whose function has another name.
_NAMED = {"round": "round_even", "rem": "fmod", "mod": "remainder"}
#: Functions whose NumPy name differs or is missing.
_NUMPY: dict[str, Callable] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "round_even": np.rint,
    "abs": np.fabs,
    "neg": np.negative,
    "pow": np.power,
    "atan2": np.arctan2,
}


@dataclass(frozen=True)
class Fault:
    """The largest error of a function in ulps, among those beyond its declared bound.

    It is inf for a wrong NaN, infinity or sign of zero.  The argument and both values are included.
    """

    ulps: float
    at: tuple[float, ...]
    want: float
    got: float

    @property
    def error(self) -> float:
        """Return the error relative to the right value; inf if that is 0 or not finite."""
        off = abs(self.got - self.want)
        return off / abs(self.want) if self.want and math.isfinite(off) else math.inf


def checks(module: Module, imported: Module) -> list[CheckRecord]:
    """Return a failed check for each elementary function of ``module`` that exceeds its bound.

    Its value is one of ``imported``, from which the kernels were made.
    """
    found = []
    for (name, dtype), op in used(module).items():
        fault = wrong(name, dtype)
        if fault is not None:
            arguments = ", ".join(f"{x:.9g}" for x in fault.at)
            stated = _functions()[name].bounds[dtype]
            note = (
                f"{name}({arguments}) in {dtype} is off by {fault.ulps:.3g} ulps; the contract "
                f"states {stated:g} (docs/numerics.md)"
            )
            found.append(
                CheckRecord(
                    None,
                    "failed",
                    fault.error,
                    value=_of(op, name, imported),
                    old=fault.want,
                    new=fault.got,
                    note=note,
                    kind=KIND,
                )
            )
    return found


def used(module: Module) -> dict[tuple[str, str], Op]:
    """Return the elementary functions that kernels call, by name and dtype, with the first caller.

    The dtype is f32 or f64: the one in which the function is computed, and f64, in which stages are
    judged.
    """
    known = _functions()
    found: dict[tuple[str, str], Op] = {}
    for function in module.functions.values():
        for op in function.body.walk():
            _, _, name = op.kind.partition("kernel.")
            name = _NAMED.get(name, name)
            if name not in known or not op.results:
                continue
            kind = getattr(op.results[0].type, "dtype", op.results[0].type)
            if isinstance(kind, DType) and code_name(kind) in known[name].dtypes:
                found.setdefault((name, code_name(kind)), op)
                found.setdefault((name, "f64"), op)
    return found


@functools.cache
def wrong(name: str, dtype: str) -> Fault | None:
    """Return the fault of a function in f32 or f64, or None if it keeps its bound."""
    passed, key = PassedChecks("functions", _SOURCES), f"{name}_{dtype}"
    if key in passed:
        return None
    function = _functions()[name]
    random = np.random.default_rng(11)
    faults = [
        _worst(name, dtype, arguments, extra_ulps)
        for arguments, extra_ulps in _cases(
            name, np.dtype(f"f{int(dtype[1:]) // 8}"), function.arity, random
        )
    ]
    found = max((f for f in faults if f is not None), key=lambda f: f.ulps, default=None)
    if found is None:
        passed.add(key)
    return found


def _worst(
    name: str, dtype: str, arguments: tuple[np.ndarray, ...], extra_ulps: float
) -> Fault | None:
    """Return the largest error on argument arrays beyond the bound and ``extra_ulps``, or None."""
    got = apply(name, *arguments)
    want, slack = _oracle(name, arguments)
    error = _ulps(got, want)
    allowed = _functions()[name].bounds[dtype] + max(slack, extra_ulps)
    index = int(np.argmax(error))
    if error[index] <= allowed:
        return None
    at = tuple(float(a[index]) for a in arguments)
    return Fault(float(error[index]), at, float(want[index]), float(got[index]))


def _oracle(name: str, arguments: tuple[np.ndarray, ...]) -> tuple[np.ndarray, float]:
    """Return NumPy's results in a wider format, and their error bound in ulps of the arguments."""
    narrow = arguments[0].dtype
    in_f64 = narrow.itemsize == 4 or name in ("erf", "erfc")  # NumPy has neither for longdouble
    wide: Any = np.float64 if in_f64 else np.longdouble
    given = [a.astype(wide) for a in arguments]
    function = _NUMPY.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        found = np.asarray(function(*given))
    return found, _ORACLE * float(np.finfo(wide).eps / np.finfo(narrow).eps)


def _ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return the elementwise errors in ulps of the exact result.

    Beyond the largest finite value, the ulp of that value is used.
    """
    kind = np.finfo(got.dtype)
    wide = got.astype(want.dtype)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(want)[1] - 1, kind.minexp, kind.maxexp - 1)
        top = np.ldexp(want.dtype.type(1), kind.maxexp)
        off = np.abs(np.clip(wide, -top, top) - np.clip(want, -top, top))
        error = np.ldexp(off, kind.nmant - exponent).astype(np.float64)
        zero = (want == 0) & ((wide != 0) | (np.signbit(wide) != np.signbit(want)))
        infinite = np.isinf(want) & (wide != want)
    neither = np.isnan(wide) | np.isnan(want)
    error = np.where(zero | infinite | neither, np.inf, error)
    return np.where(np.isnan(wide) & np.isnan(want), 0.0, error)


# -- arguments -------------------------------------------------------------------------------------


def _cases(
    name: str, kind: np.dtype, arity: int, random: np.random.Generator
) -> Iterator[tuple[tuple[np.ndarray, ...], float]]:
    """Yield argument arrays, with the error that a function may have beyond its bound on them."""
    special = _specials(kind)
    lost = _LOST if kind.itemsize == 8 else 0.0
    if arity == 1:
        yield (_numbers(kind, random),), 0.0
        yield (special,), lost
        return
    first, second = _numbers(kind, random), _numbers(kind, random)
    random.shuffle(second)
    if name == "pow":  # results that neither overflow nor are 1
        first = np.exp2(random.uniform(-20, 20, len(second))).astype(kind)
        reach = 120 if kind.itemsize == 4 else 1000
        second = (random.uniform(-reach, reach, len(second)) / np.log2(first)).astype(kind)
    yield (first, second), 0.0
    pairs = np.meshgrid(special, special)
    yield (pairs[0].ravel(), pairs[1].ravel()), lost


def _numbers(kind: np.dtype, random: np.random.Generator) -> np.ndarray:
    """Return values of all sizes and values at which functions change their behaviour."""
    lines = [random.uniform(-end, end, _COUNT) for end in (1.25, 5.0, 30.0, 700.0)]
    sizes = (-126, 127) if kind.itemsize == 4 else (-60, 1000)
    powers = np.exp2(random.uniform(*sizes, _COUNT)) * random.choice([-1.0, 1.0], _COUNT)
    return np.concatenate([*lines, powers]).astype(kind)


def _specials(kind: np.dtype) -> np.ndarray:
    """Return zeros, subnormals, extremes, infinities, NaN, and neighbours of round values."""
    limits = np.finfo(kind)
    base = np.array(
        [0, limits.smallest_subnormal, limits.tiny, limits.eps, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3,
         np.pi / 2, np.pi, 10, 17, 88.72284, 103.97, 127, 128, 149, 709.78, 745.13, 1023, 1074,
         1e10, 2.0**23, 2.0**31, 2.0**52, limits.max, np.inf], kind,
    )  # fmt: skip
    with np.errstate(over="ignore"):
        near = np.concatenate([base, *(np.nextafter(base, kind.type(e)) for e in (0, np.inf))])
    return np.concatenate([near, -near, np.array([np.nan], kind)])


def _of(op: Op, name: str, imported: Module) -> Value | None:
    """Return the result of the op of ``imported`` from which a kernel's op was made.

    Otherwise the first op with the function's own name; None if there is neither.
    """
    nodes = set(op.origin.nodes()) if op.origin is not None else set()
    made = [o for o in imported.main.body.ops if o.results]
    same = (o for o in made if o.origin is not None and nodes & set(o.origin.nodes()))
    found = next(same, None) or next((o for o in made if o.kind == f"core.{name}"), None)
    return None if found is None else found.results[0]


def _functions() -> dict:
    """Return the table of functions, whose import compiles them."""
    from core_compiler.numerics.functions import FUNCTIONS

    return FUNCTIONS
