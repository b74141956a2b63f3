"""The first bad pass of a compile, as plain data that is stored next to the recording.

The command line and the page share it.
"""

from __future__ import annotations

import base64
import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from core_compiler.debug import elementary, translations
from core_compiler.debug.bisect import (
    Finding,
    VerifiedWork,
    bisect,
    made_by,
    of_import,
    tensor_value,
)
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Compilation, Options
from core_compiler.driver.legality import levels
from core_compiler.ir.text import print_module, print_ops, value_names
from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import need_regular
from workbench.model import recorded_model, reducing
from workbench.model.kept_results import Result, Results
from workbench.model.models import Model
from workbench.model.spec import RECORDED
from workbench.queries import numeric_results

#: The largest relative error of the outputs against the import that is not a fault.
TOLERANCE = 1e-3
#: The time for which the program is reduced for the page (seconds).
REDUCE_SECONDS = 60.0
#: A larger reproducer (bytes) is not stored next to the recording.
MAX_DOWNLOAD_BYTES = 1 << 20
Progress = Callable[[str, int, int], None]


def tolerance(value: Any, where: str = "--tolerance") -> float:
    """Return the validated tolerance of a user."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise UserError(
            f"expected a number, got {str(value)[:40]!r}", where, "pass a number like 1e-3"
        ) from None
    if not 0 < found < float("inf"):
        raise UserError(
            f"expected a finite number above 0, got {found:g}", where, "pass a number like 1e-3"
        )
    return found


def read_inputs(path: Path, model: Model) -> tuple[np.ndarray, ...]:
    """Return the model's inputs from an ``.npz``: by their names, or ``arr_0``, ``arr_1``.

    In order.

    For a training step these are the batch; the rest of its state may be included. UserError if
    the file cannot be read, or an array is missing or has another shape or dtype.
    """
    need_regular(path)
    try:
        with np.load(path, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
    except OSError as error:
        why = error.strerror or "not an .npz file"
        raise UserError(f"cannot read the file: {why}", str(path), "check the path") from None
    except (ValueError, zipfile.BadZipFile, KeyError, AttributeError, TypeError) as error:
        raise UserError(
            f"not an .npz of plain arrays ({str(error)[:120]})",
            str(path),
            "write it with numpy.savez",
        ) from None
    input_count = len(model.inputs) - len(model.imported.state)
    needed = recorded_model.batch_indices(model) or range(input_count)
    made = []
    for index, expected in enumerate(model.inputs[:input_count]):
        names = [*model.imported.inputs[index : index + 1], f"arr_{index}"]
        given = next((arrays[name] for name in names if name in arrays), None)
        kind = f"{expected.dtype} of shape {list(expected.shape)}"
        if given is None and index not in needed:
            made.append(expected)
            continue
        if given is None:
            raise UserError(
                f"missing array {' or '.join(names)}",
                str(path),
                f"add it: {kind}; the file has {', '.join(arrays) or 'no arrays'}",
            )
        if given.shape != expected.shape or given.dtype != expected.dtype:
            raise UserError(
                f"expected {names[0]} to be {kind}, got {given.dtype} of shape {list(given.shape)}",
                str(path),
                "pass an array as the model takes it",
            )
        made.append(np.ascontiguousarray(given).reshape(given.shape))  # gives rank 0 an axis
    return (*made, *model.inputs[input_count:])


@dataclass(frozen=True, eq=False)
class Search:
    """The parameters of a search.

    ``inputs`` are arrays for main's arguments; ``tolerance`` is the largest error of the outputs
    that is not a fault; ``execute``: compare machine code too.
    """

    model: Model
    target: str
    options: Options
    inputs: Sequence[np.ndarray]
    tolerance: float = TOLERANCE
    execute: bool = True

    def run(self, progress: Progress) -> tuple[dict[str, Any], Compilation, Finding | None]:
        """Return the result (:func:`facts`), the compilation up to the fault, and the finding."""
        options = recorded_model.with_training(self.options, self.model)
        made = compilation.start(
            self.model.imported.module, self.target, options, list(self.inputs)
        )
        if self.model.spec.kind == RECORDED:
            recorded_model.check_pipeline(self.model.spec.text, made.steps)
        looked = VerifiedWork()
        found = bisect(
            made,
            self.inputs,
            levels=levels(),
            tolerance=self.tolerance,
            execute=self.execute,
            progress=progress,
            looked=looked,
        )
        if found is None:  # faults that change no value between stages: a substituted translation,
            module = self.model.imported.module  # or a function that all stages compute alike
            wrong = [
                *translations.checks(self.model.imported.facts, module),
                *elementary.checks(made.module, module),
            ]
            found = of_import(module, wrong[0]) if wrong else None
        data = facts(found, looked, made)
        given = {
            "model": self.model.name,
            "target": made.target.name,
            "tolerance": self.tolerance,
            "stood_in": recorded_model.describe_stand_ins(
                self.model, self.inputs is not self.model.inputs
            ),
        }
        return {**data, **given}, made, found

    def suspect(self, made: Compilation, found: Finding) -> reducing.Suspect:
        """Return the case to reduce; UserError if the import is wrong and no pass."""
        if not found.stage:
            raise UserError(
                f"the import is wrong, not a pass: {found.note}",
                self.model.name,
                "compile a model of that node alone to reproduce it",
            )
        modules = [stage.module for stage in made.stages]
        return reducing.suspect(
            modules,
            made.steps,
            found.seen,
            self.model.name,
            self.inputs,
            made.target,
            made.options,
            self.tolerance,
        )


def facts(found: Finding | None, looked: VerifiedWork, made: Compilation) -> dict[str, Any]:
    """Return a search as plain data.

    If nothing is wrong, the fields of the finding are None or empty.

    ``first_bad_pass``, its ``stage``, ``how`` it was detected, the ``note``; ``first_bad_rewrite``
    (``number`` from 0); the ``value`` with the ``index`` of its worst element, the ``numbers``
    there (right, wrong), their distance ``ulps`` and ``absolute``, the relative ``error``;
    ``model_lines`` (``file:line``) that the value comes from. ``looked``: what was found correct.
    """
    data: dict[str, Any] = {
        "first_bad_pass": None,
        "first_bad_rewrite": None,
        "value": None,
        "stage": None,
        "how": "",
        "note": "",
        "error": None,
        "index": [],
        "numbers": None,
        "absolute": None,
        "ulps": None,
        "model_lines": [],
        "looked": {
            "passes": looked.passes,
            "of": len(made.steps),
            "verdicts": dict(looked.verdicts),
            "error": looked.error,
            "worst_pass": looked.worst_pass,
            "launches": looked.launches,
            "not_executed": looked.not_executed,
        },
    }
    return data if found is None else data | _finding_data(found)


def _finding_data(found: Finding) -> dict[str, Any]:
    names: dict = {}
    assert found.before is not None
    for function in found.before.functions.values():
        names |= value_names(function)
    value, op, rewrite = tensor_value(found), made_by(found), found.rewrite
    nodes = op.origin.nodes() if op is not None and op.origin is not None else ()
    rewrite_data = None
    if rewrite is not None or found.number is not None:
        old, new = (rewrite.old, rewrite.new) if rewrite else ((), ())
        lines = print_ops((*old, *new), names)
        rewrite_data = {
            "number": found.number,
            "rule": rewrite.rule if rewrite else None,
            "source": rewrite.source if rewrite else "",
            "function": rewrite.function if rewrite else "",
            "note": rewrite.note if rewrite else "",
            "old": lines[: len(old)],
            "new": lines[len(old) :],
        }
    dtype = getattr(getattr(value, "type", None), "dtype", None)
    right, wrong = found.numbers or (None, None)
    difference = None if right is None or wrong is None else abs(wrong - right)
    return {
        "first_bad_pass": found.pass_label,
        "first_bad_rewrite": rewrite_data,
        "value": None if value is None else names.get(value) or f"%{value.name or '?'}",
        "stage": found.stage,
        "how": found.how,
        "note": found.note,
        "error": found.error,
        "index": list(found.index),
        "numbers": None if found.numbers is None else [right, wrong],
        "absolute": difference,
        "ulps": None if dtype is None else numeric_results.ulps(right, wrong, dtype.numpy),
        "model_lines": list(dict.fromkeys(f"{n.file}:{n.line}" for n in nodes if n.file)),
    }


# -- reduction -------------------------------------------------------------------------------------


def reduced(
    search: Search,
    made: Compilation,
    found: Finding,
    progress: Progress,
    seconds: float = REDUCE_SECONDS,
) -> dict[str, Any]:
    """Return the smallest program that reproduces a finding.

    ``problem`` ("" if there is one), the counts of ``workbench reduce --json``, its IR as
    ``text``, and ``download``: the reproducer, one file or a zip, in base64 (None if it is too
    large to store).
    """
    with tempfile.TemporaryDirectory(prefix="compiler-workbench-") as name:
        folder = Path(name) / "reproducer"
        try:
            suspect = search.suspect(made, found)
            wrote = reducing.reduce_and_write(suspect, folder, seconds, progress)
        except UserError as error:  # passes that cannot be written as Python
            return {**_NOTHING, "problem": str(error)}
        if wrote is None:
            return {**_NOTHING, "problem": "the pass does not fail when it runs on its own"}
        data, case = wrote
        paths = [Path(path) for path in data["files"]]
        counts = {k: data[k] for k in _NOTHING if k in data}
        return {
            **_NOTHING,
            **counts,
            "files": [path.name for path in paths],
            "stopped": data["stopped"] or "",
            "text": print_module(case.case.module),
            "download": _download(paths),
        }


_NOTHING: dict[str, Any] = {
    "problem": "",
    "ops_before": 0,
    "ops_after": 0,
    "tried": 0,
    "seconds": 0.0,
    "stopped": "",
    "runs_alone": False,
    "says": "",
    "files": [],
    "text": "",
    "download": None,
}


def _download(paths: Sequence[Path]) -> dict[str, str] | None:
    if sum(path.stat().st_size for path in paths) > MAX_DOWNLOAD_BYTES:
        return None
    if len(paths) == 1:
        return {"name": paths[0].name, "base64": _base64(paths[0].read_bytes())}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.write(path, f"reproducer/{path.name}")
    return {"name": "reproducer.zip", "base64": _base64(buffer.getvalue())}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


# -- stored results --------------------------------------------------------------------------------


def key_of(identity: str | None, tolerance: float, inputs: str) -> str:
    """Return the key of a result.

    It depends on the recording (``Run.identity``: its file may be rewritten), the version of the
    numerics contract, and the parameters of the search; ``inputs``: the path of an ``.npz``, or
    "".
    """
    return f"{_key_prefix(identity)}{tolerance!r} {inputs}"


def newest(recording: Path, identity: str | None) -> Result | None:
    """Return the result that was stored last for a recording."""
    return RESULTS.newest(recording, _key_prefix(identity))


def _key_prefix(identity: str | None) -> str:
    return f"{identity} contract {CONTRACT_VERSION} "


_NUMBER = (int, float)
_LIKE: dict[str, Any] = {
    "model": str, "target": str, "tolerance": _NUMBER, "inputs": str, "stood_in": str,
    "first_bad_pass": (str, NoneType), "value": (str, NoneType), "stage": (int, NoneType),
    "how": str, "note": str, "error": (*_NUMBER, NoneType), "index": [int],
    "numbers": ([_NUMBER], NoneType), "absolute": (*_NUMBER, NoneType), "ulps": (int, NoneType),
    "model_lines": [str],
    "first_bad_rewrite": ({
        "number": (int, NoneType), "rule": (str, NoneType), "source": str, "function": str,
        "note": str, "old": [str], "new": [str],
    }, NoneType),
    "looked": {
        "passes": int, "of": int, "verdicts": dict, "error": _NUMBER, "worst_pass": str,
        "launches": (int, NoneType), "not_executed": str,
    },
    "reduced": ({
        "problem": str, "ops_before": int, "ops_after": int, "tried": int, "seconds": _NUMBER,
        "stopped": str, "runs_alone": bool, "says": str, "files": [str], "text": str,
        "download": ({"name": str, "base64": str}, NoneType),
    }, NoneType),
}  # fmt: skip


def _fits(value: Any, like: Any) -> bool:
    """Return whether ``value`` has the types of ``like``.

    ``like`` is a type, a list of one element type, a dictionary by name, or a tuple of
    alternatives.
    """
    if isinstance(like, tuple):
        return any(_fits(value, each) for each in like)
    if isinstance(like, list):
        return isinstance(value, list) and all(_fits(each, like[0]) for each in value)
    if isinstance(like, dict):
        return isinstance(value, dict) and all(
            name in value and _fits(value[name], each) for name, each in like.items()
        )
    return isinstance(value, like)


def _validated(found: Mapping[str, Any]) -> Result | None:
    found = {"stood_in": "", **found}  # which earlier results lack
    sound = _fits(found, _LIKE) and len(found["numbers"] or "ab") == 2
    return {name: found[name] for name in _LIKE} if sound else None


def _describe(result: Mapping[str, Any]) -> str:
    named = result.get("first_bad_pass")
    return f"{named} is the first bad pass" if named else "nothing is wrong"


RESULTS = Results(".bisect.json", _validated, _describe)
