r"""The f32 functions over all 2**32 inputs, or 2**32 sampled pairs of inputs.

    python -m tests.kernels.exhaustive [NAME ...] [--jobs 2] [--pairs N] \
        [-o tests/results/functions-f32.json]

Prints a row a function: the largest error in ulps against NumPy's and SciPy's f64 functions, the
first input that has it, the bound that the function states, and how many results are not the
correctly rounded ones, of the f32 function and of the f64 function rounded to f32 (the pass
``round_correctly``).  ``-o`` puts the rows in place of those that the file has of these functions.
Exits with 1 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numba
import numpy as np

from core_compiler.numerics.functions import (
    BINARY,
    BOUNDS,
    FUNCTIONS,
    PRIMITIVE_FUNCTIONS,
    THROUGH_F64,
)
from tests.kernels.pairs import pairs, special_pairs
from tests.kernels.ulp import ORACLES, bit_patterns, exactly, nearest_f32, worst
from tests.record_results import circumstances

UNARY = sorted(set(FUNCTIONS) - set(BINARY))
#: Exact or rounded once in f32: a detour through f64 has nothing to give them.
ONE_ROUNDING = (*PRIMITIVE_FUNCTIONS, "sign", "fmod", "remainder")
#: One f64 ulp of slack per 2**-29 f32 ulps: the oracles are f64 functions, not exact ones.
ORACLE_SLACK = 1e-7
#: Relative; some hundred times what the oracles err.  Where rounding to f32 is the same on both
#: sides of it the oracle decides, elsewhere many digits do.
MARGIN = 2.0**-43
#: Inputs at a time: what fits a cache, as the arrays are read many times.
COUNT = 1 << 15
#: Inputs of a part, which one process does.
PART = 1 << 27
#: How many inputs of results that are not correctly rounded a row names.
NAMED = 8
#: What the figures depend on.
SOURCES = (
    "core_compiler/kernels",
    "tests/kernels/exhaustive.py",
    "tests/kernels/pairs.py",
    "tests/kernels/ulp.py",
)


@functools.cache
def loop(name: str, dtype: str):
    """A compiled loop of a function over arrays: ``run(*arguments, out)``."""
    function = FUNCTIONS[name].callables[dtype]
    if name in BINARY:

        @numba.njit
        def run(x, y, out):
            for i in range(out.size):
                out[i] = function(x[i], y[i])
    else:

        @numba.njit
        def run(x, out):
            for i in range(out.size):
                out[i] = function(x[i])

    return run


def evaluate(name: str, *args: np.ndarray) -> np.ndarray:
    out = np.empty_like(args[0])
    loop(name, {4: "f32", 8: "f64"}[out.itemsize])(*args, out)
    return out


def evaluate_through_f64(name: str, *args: np.ndarray) -> np.ndarray:
    """The f64 function of f32 arrays, rounded to f32."""
    with np.errstate(all="ignore"):
        return evaluate(name, *(a.astype(np.float64) for a in args)).astype(np.float32)


def oracle(name: str, *args: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return ORACLES[name](*(a.astype(np.float64) for a in args))


def error_f32(name: str, *args: np.ndarray) -> tuple[float, int]:
    """The largest error in ulps of a function on f32 arrays, and where it is."""
    return worst(evaluate(name, *args), oracle(name, *args))


def worst_of_all(name: str) -> tuple[float, float]:
    """The largest error of a unary function over all bit patterns, and the first input with it."""
    largest, where = 0.0, 0.0
    for start in range(0, 1 << 32, COUNT):
        x = bit_patterns(start, COUNT)
        error, place = error_f32(name, x)
        if error > largest:
            largest, where = error, float(x[place])
    return largest, where


# -- correct rounding ------------------------------------------------------------------------------


def doubtful(got: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Places of f32 results that are not what both ends of the oracle's margin round to."""
    places = np.empty(got.size, np.int64)
    bits = got.view(np.int32)
    count = _doubtful(got, bits, reference, MARGIN, np.empty((2, got.size), np.float32), places)
    return places[:count]


@numba.njit(nogil=True)
def _doubtful(got, bits, reference, margin, ends, places):
    for i in range(got.size):
        ends[0, i] = np.float32(reference[i] * (1.0 - margin))
        ends[1, i] = np.float32(reference[i] * (1.0 + margin))
    low, high = ends[0].view(np.int32), ends[1].view(np.int32)
    count = 0
    for i in range(got.size):  # a loop that vectorises; the next one runs where it finds some
        both_nan = (got[i] != got[i]) & (reference[i] != reference[i])
        count += ((bits[i] != low[i]) | (low[i] != high[i])) & (not both_nan)
    if count == 0:
        return 0
    count = 0
    for i in range(got.size):
        both_nan = (got[i] != got[i]) & (reference[i] != reference[i])
        if ((bits[i] != low[i]) | (low[i] != high[i])) & (not both_nan):
            places[count] = i
            count += 1
    return count


def misrounded(
    name: str, got: np.ndarray, reference: np.ndarray, args: tuple[np.ndarray, ...]
) -> np.ndarray:
    """Places of f32 results that are not the correctly rounded ones; ties are to even."""
    places = doubtful(got, reference)
    with np.errstate(all="ignore"):
        low, high = ((reference[places] * (1 + s * MARGIN)).astype(np.float32) for s in (-1, 1))
    wrong = low.view(np.int32) == high.view(np.int32)  # the oracle decides: it is another
    for i in np.flatnonzero(~wrong):
        rounded = nearest_f32(exactly(name, *(a[places[i]] for a in args)))
        wrong[i] = rounded.tobytes() != got[places[i]].tobytes()
    return places[wrong]


# -- all of it -------------------------------------------------------------------------------------


@dataclass
class Found:
    """What some of the inputs of a function came to; ``wrong``: not correctly rounded, ``f32`` by
    the f32 function, ``f64`` by the f64 function rounded, ``at`` the first inputs of those."""

    error: float = 0.0
    where: tuple[float, ...] = (0.0,)
    wrong: dict[str, int] = field(default_factory=dict)
    at: list[tuple[float, ...]] = field(default_factory=list)
    inputs: int = 0
    seconds: float = 0.0

    def add(self, other: Found) -> None:
        if other.error > self.error or not self.inputs:
            self.error, self.where = other.error, other.where
        self.wrong = {way: n + self.wrong.get(way, 0) for way, n in other.wrong.items()}
        self.at = (self.at + other.at)[:NAMED]
        self.inputs += other.inputs
        self.seconds += other.seconds


def examine(name: str, *args: np.ndarray) -> Found:
    """The figures of a function on f32 arrays."""
    reference = oracle(name, *args)
    got = evaluate(name, *args)
    error, place = worst(got, reference)
    wrong = {"f32": misrounded(name, got, reference, args)}
    if name in THROUGH_F64:
        wrong["f64"] = wrong["f32"]
    elif name not in ONE_ROUNDING:
        wrong["f64"] = misrounded(name, evaluate_through_f64(name, *args), reference, args)
    return Found(
        error,
        _numbers(args, place),
        {way: len(places) for way, places in wrong.items()},
        [_numbers(args, p) for p in wrong.get("f64", ())[:NAMED]],
        args[0].size,
    )


def _numbers(args: tuple[np.ndarray, ...], place: int) -> tuple[float, ...]:
    return tuple(float(a[place]) for a in args)


def _inputs(name: str, part: int) -> Iterator[tuple[np.ndarray, ...]]:
    if name in BINARY and part == 0:
        yield special_pairs()
    for start in range(part * PART, (part + 1) * PART, COUNT):
        if name in BINARY:
            yield pairs(name, start, COUNT)
        else:
            yield (bit_patterns(start, COUNT),)


def examine_part(task: tuple[str, int]) -> tuple[str, Found]:
    """The figures of one of the parts of all inputs; ``task``: function, number of the part."""
    name, part = task
    began = time.process_time()
    found = Found()
    for args in _inputs(name, part):
        found.add(examine(name, *args))
    found.seconds = time.process_time() - began
    return name, found


def _parts(inputs: int) -> int:
    return -(-inputs // PART)


def row(name: str, found: Found) -> dict[str, Any]:
    def plain(numbers: tuple[float, ...]) -> Any:
        return numbers[0] if name not in BINARY else list(numbers)

    return {
        "function": name,
        "inputs": found.inputs,
        "worst_ulps": found.error,
        "at": plain(found.where),
        "bound": BOUNDS[name][0],
        "holds": found.error <= BOUNDS[name][0] + ORACLE_SLACK,
        "misrounded": found.wrong,
        "misrounded_through_f64_at": [plain(n) for n in found.at],
        "seconds": round(found.seconds, 1),
    }


def told(made: dict[str, Any]) -> str:
    return (
        "{function:12} {worst_ulps:8.5f} ulps at {at!s:<24} bound {bound:<6g} "
        "misrounded {misrounded} {seconds:7.1f} s".format(**made)
    )


def record(target: Path, made: dict[str, Any], run: dict[str, Any]) -> None:
    """Put a row, and the run that it is of, into the file of figures."""
    held = json.loads(target.read_text()) if target.exists() else {"runs": [], "functions": []}
    rows = {r["function"]: r for r in held["functions"]}
    runs = held["runs"] + ([run] if run not in held["runs"] else [])
    rows[made["function"]] = {**made, "run": runs.index(run)}
    used = sorted({r["run"] for r in rows.values()})
    for r in rows.values():
        r["run"] = used.index(r["run"])
    held = {"runs": [runs[i] for i in used], "functions": [rows[name] for name in sorted(rows)]}
    target.write_text(json.dumps(held, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=sorted(FUNCTIONS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=1 << 32, help="of binary functions")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    libraries = ("numpy", "scipy", "mpmath", "numba", "llvmlite")
    run = circumstances(libraries, *SOURCES)
    parts = {name: _parts(given.pairs if name in BINARY else 1 << 32) for name in given.names}
    found: dict[str, Found] = {}
    done: dict[str, int] = dict.fromkeys(given.names, 0)
    holds = True
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        tasks = [(name, part) for name in given.names for part in range(parts[name])]
        for name, part in pool.imap(examine_part, tasks, chunksize=1):
            found.setdefault(name, Found()).add(part)
            done[name] += 1
            if done[name] < parts[name]:
                continue
            made = row(name, found[name])
            holds &= made["holds"]
            print(told(made), flush=True)
            if given.output:
                record(given.output, made, run)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
