"""JAX's own test harnesses, several in one function: what StableHLO's translations are tried on.

``jax_suite.txt`` has their names, a function a paragraph; ``python -m tests.mutations.jax_suite``
chooses anew: of those that the conformance record has as passed a few of each primitive, and one of
a primitive in an integer dtype where it can be imported.  ``tests.mutations.jax_suite:NAME`` makes
the function of that name.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.support.errors import UserError
from tests.conformance import jax_harnesses
from tests.conformance.outcomes import passed

_LIST = Path(__file__).with_suffix(".txt")
#: Harnesses of a primitive, and in one function.
OF_ONE, EACH = 3, 10
_INTEGERS = (np.int32, np.uint8, np.int16)


def models(names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Name of each function (``names``: of these) -> the harnesses that it joins."""
    found = {}
    for place, text in enumerate(_LIST.read_text().split("\n\n")):
        parts = text.split()
        name = f"jax_{place}_{parts[0].partition('_')[0]}"
        if not names or name in names:
            found[name] = parts
    return found


def __getattr__(name: str) -> Callable[[], tuple[Callable, tuple]]:
    """The function that a command line names."""
    parts = models((name,)).get(name)
    if parts is None:
        raise AttributeError(name)
    return lambda: _joined(parts)


def words(name: str) -> tuple[str, ...]:
    """The ops of StableHLO (and CHLO) that JAX lowers a function to."""
    import jax

    function, arguments = __getattr__(name)()
    text = jax.jit(function).lower(*arguments).as_text()
    return tuple(sorted(set(re.findall(r"\b(?:stable|c)hlo\.(\w+)", text))))


def _every() -> dict[str, Any]:
    from jax._src.internal_test_util import test_harnesses

    return {
        h.fullname: h
        for h in test_harnesses.all_harnesses
        if h.filter("cpu") and not h.group_name.startswith(jax_harnesses.LEFT_OUT)
    }


def _chosen() -> Iterator[Any]:
    known = passed(jax_harnesses.SUITE)
    every = sorted(_every().values(), key=lambda h: h.group_name)
    for place, (_, found) in enumerate(itertools.groupby(every, key=lambda h: h.group_name)):
        group = list(found)
        floats = [h for h in group if h.fullname in known]
        step = max(1, len(floats) // OF_ONE)
        yield from floats[::step][:OF_ONE]
        integers = [h for h in group if h.dtype == _INTEGERS[place % len(_INTEGERS)]]
        yield from itertools.islice(filter(_is_imported, integers), 1)


def _is_imported(harness: Any) -> bool:
    from core_compiler.frontends.stablehlo import import_function

    with suppress(UserError):
        import_function(harness.dyn_fun, _arguments(harness), name=harness.fullname)
        return True
    return False


def _arguments(harness: Any) -> tuple:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(harness.dyn_args_maker(np.random.RandomState(0)))


def _joined(names: Sequence[str]) -> tuple[Callable, tuple]:
    """A function of the arguments of all these harnesses, and the arguments."""
    every = _every()
    parts = [every[name] for name in names if name in every]
    arguments = [_arguments(part) for part in parts]

    def run(*given: Any) -> list[Any]:
        own = iter(given)
        return [
            part.dyn_fun(*itertools.islice(own, len(a)))
            for part, a in zip(parts, arguments, strict=True)
        ]

    return run, tuple(value for each in arguments for value in each)


if __name__ == "__main__":
    rows = [h.fullname for h in _chosen()]
    parts = ("\n".join(rows[n : n + EACH]) for n in range(0, len(rows), EACH))
    _LIST.write_text("\n\n".join(parts) + "\n")
