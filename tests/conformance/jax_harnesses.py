"""JAX's own test harnesses (in its wheel): every primitive on the shapes, dtypes and parameters
that JAX tests its lowerings with, those of dtype float32.

Left out are the groups of dense decompositions, Fourier transforms, random numbers and custom
calls (``LEFT_OUT``), and harnesses that JAX itself does not lower on a CPU.  Wanted is what
``jax.jit`` answers on the CPU; floats are compared with ``TOLERANCE`` relative and absolute.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator

import numpy as np

from core_compiler.support.errors import UserError
from tests.conformance.outcomes import Case, Wrong, installed

SUITE, LIBRARY = "jax_harnesses", "jax"
#: Groups (by prefix) that are no part of the suite.
LEFT_OUT = ("eig", "svd", "qr", "lu", "schur", "fft", "random", "custom_")
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}


def cases(names: Collection[str] | None = None) -> Iterator[Case]:
    """A case for every harness: all, or those called ``names``."""
    # Takes seconds: only where the cases are asked for, not where tests are collected.
    from jax._src.internal_test_util import test_harnesses

    wanted = None if names is None else frozenset(names)
    seen: set[str] = set()
    for harness in test_harnesses.all_harnesses:
        if harness.dtype != np.float32 or harness.group_name.startswith(LEFT_OUT):
            continue
        if not harness.filter("cpu") or harness.fullname in seen:
            continue
        seen.add(harness.fullname)
        if wanted is None or harness.fullname in wanted:
            yield Case(harness.fullname, _runner(harness))


def stems() -> list[str]:
    """What :func:`cases_of` has."""
    return [case.name for case in cases()]


def cases_of(chosen: Collection[str]) -> Iterator[Case]:
    return cases(chosen)


#: Cases whose result is not JAX's own but its machine's, and why.
OPEN = {
    "top_k_sort_inf_nan_inshape_float32_5_k_5": "where a NaN with its sign bit set is sorted "
    "differs in JAX from one processor to another; under the contract there is one NaN, the "
    "greatest",
}


def left_out(name: str) -> str:
    """Why a case is not eligible; "" where it is."""
    return OPEN.get(name, "")


def stem(name: str) -> str:
    return name


def _runner(harness):
    def run(execute) -> None:
        import jax

        from core_compiler.frontends.stablehlo import import_function
        from core_compiler.frontends.stablehlo.jax import leaves

        given = harness.dyn_args_maker(np.random.RandomState(0))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = jax.tree_util.tree_leaves(jax.jit(harness.dyn_fun)(*given))
        except Exception as error:
            raise UserError(f"jax does not execute it here ({type(error).__name__})") from None
        imported = import_function(harness.dyn_fun, given, name=harness.fullname)
        made = imported.trimmed(execute(imported, list(leaves(given))))
        if len(made) != len(wanted):
            raise Wrong(f"{len(made)} results, {len(wanted)} wanted")
        for ours, theirs in zip(made, wanted, strict=True):
            _compare(np.asarray(ours), np.asarray(theirs))

    return run


def _compare(ours: np.ndarray, theirs: np.ndarray) -> None:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        raise Wrong(f"{ours.dtype}{ours.shape}, wanted {theirs.dtype}{theirs.shape}")
    tolerance = TOLERANCE.get(theirs.dtype.name)
    if tolerance is None:
        if not np.array_equal(ours, theirs):
            raise Wrong(f"{int((ours != theirs).sum())} of {ours.size} elements differ")
        return
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
        with np.errstate(invalid="ignore"):
            apart = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        raise Wrong(
            f"{int(apart.sum())} of {ours.size} elements differ, the first "
            f"{a[apart][0]:.9g}, wanted {b[apart][0]:.9g}"
        )


def about() -> dict[str, str]:
    return {
        "suite": "JAX's primitive harnesses (jax._src.internal_test_util.test_harnesses)",
        "library": LIBRARY,
        "cases": f"dtype float32, without the groups {', '.join(f'{g}*' for g in LEFT_OUT)}",
    }


def versions() -> dict[str, str]:
    return installed(LIBRARY, "jaxlib")
