"""What came of a conformance case, how it is recorded, and the ratchet over the records.

A case is ``passed``; ``unsupported`` (we refuse it in words: a UserError); ``wrong`` (we answer,
and
the answer is not the suite's); or ``failed`` (an exception that no user should see).  Every case
of a suite has a line in its reference record: none is left out in silence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver.compilation import InvalidModule
from core_compiler.frontends.base import Imported
from core_compiler.runtime.compile_pool import KernelCompileError
from core_compiler.support.errors import UserError

RESULTS = Path(__file__).resolve().parent.parent / "results"
STATUSES = ("passed", "unsupported", "wrong", "failed")


class Wrong(Exception):
    """The answer is not the suite's."""


class NotASample(UserError):
    """The suite itself has no answer here: torch raises, or two executions of it differ."""


@dataclass(frozen=True)
class Outcome:
    """One case's status, and why it is not ``passed``; whether the suite has an answer to it."""

    status: str
    reason: str = ""
    is_sample: bool = True

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status


@dataclass(frozen=True)
class Case:
    """A named case; ``run(execute)`` imports and executes it and raises where it does not pass."""

    name: str
    run: Callable[[Callable], None]


def outcome(case: Case, execute: Callable) -> Outcome:
    """Run one case on a path (:data:`PATHS`)."""
    try:
        case.run(execute)
    except (InvalidModule, KernelCompileError) as error:  # ours, though a user would see one line
        return Outcome("failed", _line(str(error)))
    except NotASample as error:
        return Outcome("unsupported", _line(error.what), is_sample=False)
    except UserError as error:
        return Outcome("unsupported", _line(error.what))
    except Wrong as error:
        return Outcome("wrong", _line(str(error)))
    except Exception as error:
        return Outcome("failed", _line(f"{type(error).__name__}: {error}"))
    return Outcome("passed")


def _line(text: str) -> str:
    """One line without what changes from run to run (addresses, paths, object numbers)."""
    text = re.sub(r"0x[0-9a-f]+|/[\w./-]+/|; opinfo\.py:\d+", "", " ".join(text.split()))
    return text[:160]


# -- paths -----------------------------------------------------------------------------------------


def by_reference(imported: Imported, arrays) -> tuple[np.ndarray, ...]:
    """Import, then our reference evaluation."""
    module = imported.module
    return Evaluator(module.weights).block(module.main.body, list(arrays))


def by_cpu(imported: Imported, arrays) -> tuple[np.ndarray, ...]:
    """The whole road: import, all passes of the CPU pipeline, compiled kernels, executed."""
    from core_compiler.driver import compilation

    return compilation.start(imported.module, "cpu", inputs=list(arrays)).finish()(*arrays)


PATHS: Mapping[str, Callable] = {"reference": by_reference, "cpu": by_cpu}


# -- records ---------------------------------------------------------------------------------------


def load(suite: str) -> dict:
    """The record of a suite; empty where there is none yet."""
    path = RESULTS / f"{suite}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def save(suite, path: str, found: Mapping[str, Outcome]) -> None:
    """Put one path's outcomes, and with which libraries they came about, into a suite's record."""
    record = load(suite.SUITE)
    record["about"] = suite.about()
    record.setdefault("paths", {})[path] = {
        "versions": suite.versions(),
        "counts": counts(found.values()),
        "cases": {name: str(found[name]) for name in sorted(found)},
    }
    RESULTS.mkdir(exist_ok=True)
    fresh = RESULTS / f".{suite.SUITE}.json"
    fresh.write_text(json.dumps(record, indent=0) + "\n")
    fresh.replace(RESULTS / f"{suite.SUITE}.json")


def installed(*packages: str) -> dict[str, str]:
    """The installed versions of what a suite and its results depend on."""
    return {p: version(p).partition("+")[0] for p in (*packages, "numpy", "ml_dtypes", "numba")}


def counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    found = Counter(o.status for o in outcomes)
    return {status: found[status] for status in STATUSES}


def recorded(suite: str, path: str) -> dict[str, str]:
    """Case name -> recorded outcome (``passed``, ``unsupported: why`` ...)."""
    return load(suite).get("paths", {}).get(path, {}).get("cases", {})


def passed(suite: str) -> frozenset[str]:
    """The cases that are recorded as passed by reference."""
    return frozenset(n for n, found in recorded(suite, "reference").items() if found == "passed")


def recorded_versions(suite: str, path: str) -> dict[str, str]:
    """Package -> version that the record of a path was made with."""
    return load(suite).get("paths", {}).get(path, {}).get("versions", {})


def regressions(held: Mapping[str, str], found: Mapping[str, Outcome]) -> list[str]:
    """The cases that are recorded (``held``) as passed and do not pass any more, a line each."""
    return [
        f"{name}: {now}"
        for name, now in found.items()
        if held.get(name) == "passed" and now.status != "passed"
    ]
