"""The worst error of each elementary f32 function over all 2**32 inputs.

    python -m tests.kernels.exhaustive [NAME ...] [--jobs 2] [-o tests/results/functions-f32.json]

Prints a row a function: the error in ulps against NumPy's and SciPy's f64 functions, the first
input that has it, and the bound that the function states.  Exits with 1 where a bound does not
hold.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import time
from pathlib import Path

import numba
import numpy as np

from core_compiler.kernels.functions import BINARY, BOUNDS, FUNCTIONS
from tests.kernels.ulp import ORACLES, bit_patterns, worst

UNARY = sorted(set(FUNCTIONS) - set(BINARY))
#: One f64 ulp of slack per 2**-29 f32 ulps: the oracles are f64 functions, not exact ones.
ORACLE_SLACK = 1e-7
#: Inputs at a time: what fits a cache, as the arrays are read many times.
COUNT = 1 << 15


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


def error_f32(name: str, *args: np.ndarray) -> tuple[float, int]:
    """The largest error in ulps of a function on f32 arrays, and where it is."""
    with np.errstate(all="ignore"):
        reference = ORACLES[name](*(a.astype(np.float64) for a in args))
    return worst(evaluate(name, *args), reference)


def worst_of_all(name: str) -> tuple[float, float]:
    """The largest error of a unary function over all bit patterns, and the first input with it."""
    largest, where = 0.0, 0.0
    for start in range(0, 1 << 32, COUNT):
        x = bit_patterns(start, COUNT)
        error, place = error_f32(name, x)
        if error > largest:
            largest, where = error, float(x[place])
    return largest, where


def row(name: str) -> dict:
    began = time.perf_counter()
    error, where = worst_of_all(name)
    return {
        "function": name, "worst_ulps": error, "at": where, "bound": BOUNDS[name][0],
        "holds": error <= BOUNDS[name][0] + ORACLE_SLACK,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=UNARY, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for found in pool.imap(row, given.names, chunksize=1):
            rows.append(found)
            print("{function:12} {worst_ulps:8.5f} ulps at {at:<16.9g} bound {bound:<6g} "
                  "{seconds:6.1f} s".format(**found), flush=True)  # fmt: skip
    if given.output:
        held = {"inputs": 1 << 32, "functions": sorted(rows, key=lambda r: r["function"])}
        given.output.write_text(json.dumps(held, indent=1) + "\n")
    return int(not all(r["holds"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
