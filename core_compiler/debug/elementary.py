"""The elementary functions that a compile uses, held to the errors that the contract states.

What the functions of ``kernels.functions`` compute is their source, which the reference and every
target share: no comparison of two stages shows a wrong coefficient.  So each function that a kernel
calls is tried on numbers of all sizes and on special ones, against NumPy's in a wider format.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.debug.remembered import Remembered
from core_compiler.ir import DType, Module, Op, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.kernel_ir.scalars import code_name
from core_compiler.numerics.reference.elementwise import apply

#: The kind of these checks.
KIND = "function"
_SOURCES = ("numerics/functions*.py", "numerics/primitives.py", "numerics/jit.py",
            "numerics/reference/elementwise.py", "debug/elementary.py")  # fmt: skip
#: Ulps of its own format by which an oracle may be off.
_ORACLE = 4.0
#: Near the least normal number an f64 function may lose digits (an f32 one must not).
_LOST = 64.0
#: How many numbers of each kind a function is tried on.
_COUNT = 1 << 14
#: Kernel ops whose function has another name.
_NAMED = {"round": "round_even", "rem": "fmod", "mod": "remainder"}
#: The functions that have another name in NumPy, or none.
_NUMPY: dict[str, Callable] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "round_even": np.rint, "abs": np.fabs,
    "neg": np.negative, "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A function's largest error, in ulps (inf: a NaN, an infinity or a zero's sign is missed), of
    those beyond what it states: where, and both values there."""

    ulps: float
    at: tuple[float, ...]
    want: float
    got: float

    @property
    def error(self) -> float:
        """Relative to the value that is right; inf where that is 0 or no number."""
        off = abs(self.got - self.want)
        return off / abs(self.want) if self.want and math.isfinite(off) else math.inf


def checks(module: Module, imported: Module) -> list[CheckRecord]:
    """A failed check for each elementary function that the kernels of ``module`` call and that errs
    by more than it states; its value is one of ``imported``, whose kernels they are."""
    found = []
    for (name, dtype), op in used(module).items():
        fault = wrong(name, dtype)
        if fault is not None:
            arguments = ", ".join(f"{x:.9g}" for x in fault.at)
            stated = _functions()[name].bounds[dtype]
            note = (f"{name}({arguments}) in {dtype} is off by {fault.ulps:.3g} ulps; the contract "
                    f"states {stated:g} (docs/numerics.md)")  # fmt: skip
            found.append(CheckRecord(
                None, "failed", fault.error, value=_of(op, name, imported), old=fault.want,
                new=fault.got, note=note, kind=KIND,
            ))  # fmt: skip
    return found


def used(module: Module) -> dict[tuple[str, str], Op]:
    """The contract's elementary functions that kernels call, by name and dtype (f32 or f64: that
    in which it is computed, and f64, in which stages are judged), each with the first op that
    does."""
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
    """What is wrong with a function in f32 or f64; None where it keeps what it states."""
    remembered, key = Remembered("functions", _SOURCES), f"{name}_{dtype}"
    if key in remembered:
        return None
    function = _functions()[name]
    random = np.random.default_rng(11)
    faults = [
        _worst(name, dtype, arguments, beside)
        for arguments, beside in _cases(name, np.dtype(f"f{int(dtype[1:]) // 8}"), function.arity,
                                        random)
    ]  # fmt: skip
    found = max((f for f in faults if f is not None), key=lambda f: f.ulps, default=None)
    if found is None:
        remembered.add(key)
    return found


def _worst(
    name: str, dtype: str, arguments: tuple[np.ndarray, ...], beside: float
) -> Fault | None:  # fmt: skip
    """The largest error on arrays of arguments where it is beyond what is stated and ``beside``."""
    got = apply(name, *arguments)
    want, slack = _oracle(name, arguments)
    error = _ulps(got, want)
    allowed = _functions()[name].bounds[dtype] + max(slack, beside)
    place = int(np.argmax(error))
    if error[place] <= allowed:
        return None
    at = tuple(float(a[place]) for a in arguments)
    return Fault(float(error[place]), at, float(want[place]), float(got[place]))


def _oracle(name: str, arguments: tuple[np.ndarray, ...]) -> tuple[np.ndarray, float]:
    """NumPy's results in a wider format, and by how many ulps of the arguments' they may be off."""
    narrow = arguments[0].dtype
    in_f64 = narrow.itemsize == 4 or name in ("erf", "erfc")  # of longdouble NumPy has neither
    wide: Any = np.float64 if in_f64 else np.longdouble
    given = [a.astype(wide) for a in arguments]
    function = _NUMPY.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        found = np.asarray(function(*given))
    return found, _ORACLE * float(np.finfo(wide).eps / np.finfo(narrow).eps)


def _ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in ulps of the exact result, elementwise; beyond the largest finite number the ulp is
    that number's."""
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
    """Arrays of arguments, with what a function may err beside its bound on them."""
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
    """Numbers of all sizes and of those at which functions turn."""
    lines = [random.uniform(-end, end, _COUNT) for end in (1.25, 5.0, 30.0, 700.0)]
    sizes = (-126, 127) if kind.itemsize == 4 else (-60, 1000)
    powers = np.exp2(random.uniform(*sizes, _COUNT)) * random.choice([-1.0, 1.0], _COUNT)
    return np.concatenate([*lines, powers]).astype(kind)


def _specials(kind: np.dtype) -> np.ndarray:
    """Zeros, subnormals, extremes, infinities, NaN, and neighbours of round numbers."""
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
    """The result of the op of ``imported`` that a kernel's op comes from, or else of the first of
    the function's own name; None where neither is."""
    nodes = set(op.origin.nodes()) if op.origin is not None else set()
    made = [o for o in imported.main.body.ops if o.results]
    same = (o for o in made if o.origin is not None and nodes & set(o.origin.nodes()))
    found = next(same, None) or next((o for o in made if o.kind == f"core.{name}"), None)
    return None if found is None else found.results[0]


def _functions() -> dict:
    """The table of functions, whose import compiles them."""
    from core_compiler.numerics.functions import FUNCTIONS

    return FUNCTIONS
