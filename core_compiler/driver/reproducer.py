"""Reproducers: a reduced failure as a standalone Python file, written by ``workbench reduce``.

``python reproducer.py`` prints one line and exits with 1 while the failure persists, with 0 once it
is gone.  The file contains the module as text, the values that one line can express (the rest is in
``reproducer.npz``), and the passes; a user's own pass is copied beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import core_compiler
from core_compiler import targets
from core_compiler.debug.bisect import END_TO_END, NEVER_ENDS, RAISED
from core_compiler.debug.candidates import CONSTANT
from core_compiler.debug.failure import Failure, Trial
from core_compiler.debug.recipes import RECIPES, expression_for
from core_compiler.debug.reduce import Reduced
from core_compiler.driver.legality import levels
from core_compiler.ir import Module, WeightStore, dtype
from core_compiler.ir.parser import parse
from core_compiler.ir.text import print_module, weight_names
from core_compiler.ops.evaluation import constant_array
from core_compiler.pipelines.pipeline import Step
from core_compiler.pipelines.python_text import Spelling
from core_compiler.support.errors import UserError

NAME = "reproducer"
DEFAULT_TOLERANCE = 1e-3


def trial(
    steps: Sequence[Step],
    target: str | Any = "cpu",
    options: Mapping[str, Any] | None = None,
    pass_seconds: float | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    threads: int = 0,
) -> Trial:
    """Return a trial of passes for a target, given by name or as an object."""
    chosen = targets.target(target) if isinstance(target, str) else target
    return Trial(
        tuple(steps), chosen, levels(chosen), dict(options or {}), pass_seconds, tolerance, threads
    )


def run(
    module: str,
    inputs: Sequence[np.ndarray] | None,
    weights: Sequence[np.ndarray],
    passes: Sequence[Step],
    failure: Failure,
    **how: Any,
) -> int:
    """Run ``passes`` on the module of a text and print whether ``failure`` persists.

    ``weights`` are the arrays that the text names by digest; ``how`` is passed to :func:`trial`.
    Returns the exit code: 1 if anything is wrong, 0 if nothing is, 2 and 3 for errors of the input
    and of the machine.
    """
    store = WeightStore()
    for array in weights:
        store.add(array)
    try:
        parsed = parse(module, weights=store, where="MODULE")
        found = list(trial(passes, **how).failures(parsed, inputs))
    except UserError as error:
        print(error)
        return error.exit_code
    same = next((f for f in found if _is_same_failure(f, failure)), None)
    if same is not None:
        print(f"FAILS: pass {same.pass_label}, {same.how}: {same.note or same.what}")
    elif found:
        other = found[0]
        print(
            f"FAILS in another way (recorded: {failure.how}, {failure.what}): "
            f"pass {other.pass_label}, {other.how}: {other.note or other.what}"
        )
    else:
        print(f"gone: pass {failure.pass_label} runs without a failure")
    return int(bool(found))


def _is_same_failure(a: Failure, b: Failure) -> bool:
    """Return whether two failures are the same, ignoring lines of a pass that was edited."""
    return (a.pass_label, a.how, a.what) == (b.pass_label, b.how, b.what)


# -- writing ---------------------------------------------------------------------------------------


def write(folder: Path, reduced: Reduced, target: str, origin: str = "") -> list[Path]:
    """Write ``reproducer.py`` and its files into ``folder`` (created if missing); return them.

    ``target`` is the target's name, ``origin`` says what was reduced.  Raises UserError if a pass
    cannot be written as Python, or if the folder cannot be written.
    """
    spelling = Spelling(reserved=NAME)
    reduced = replace(reduced, case=replace(reduced.case, module=_hashed(reduced.case.module)))
    passes = [_step(step, spelling) for step in reduced.trial.steps]
    stored_arrays: dict[str, np.ndarray] = {}
    text = _source(reduced, target, origin, spelling, passes, stored_arrays)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = [folder / f"{NAME}.py"]
        made[0].write_text(text, encoding="utf-8")
        for name, content in spelling.files.items():
            made.append(folder / name)
            made[-1].write_text(content, encoding="utf-8")
        if stored_arrays:
            made.append(folder / f"{NAME}.npz")
            with made[-1].open("wb") as stream:
                np.savez_compressed(stream, allow_pickle=False, **stored_arrays)
    except OSError as error:
        raise UserError(
            f"cannot be written: {error.strerror}",
            str(error.filename or folder),
            "choose another folder",
        ) from None
    return made


def shows(path: Path, timeout: float = 120.0) -> tuple[bool, str]:
    """Return whether a written reproducer shows its failure when run, and the line it prints."""
    here = str(Path(core_compiler.__file__).parents[1])  # if it is not installed
    paths = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), here) if p)
    try:
        done = subprocess.run(
            [sys.executable, path.name],
            cwd=path.parent,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        return False, f"it did not finish in {timeout:g} s"
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines() or [""]
    return done.returncode == 1 and lines[-1].startswith("FAILS: "), lines[-1]


def _hashed(module: Module) -> Module:
    """Return ``module`` with its weights under their own hashes, as they may be substituted."""
    ops = tuple(
        op.with_(attributes={"value": module.weights.add(constant_array(op, module.weights))})
        if op.kind == CONSTANT
        else op
        for op in module.main.body.ops
    )
    return module.with_main(module.main.body.with_(ops=ops))


_FILE = '''\
"""{title}

    python {name}.py

prints one line, and exits with 1 while the failure is there, with 0 when it is gone.
{origin}  Needs compiler-workbench {version}{beside}.
"""

{imports}{stored}
MODULE = {module}
INPUTS = {inputs}
WEIGHTS = {weights}
PASSES = (
{passes})
FAILURE = {failure}

if __name__ == "__main__":
    sys.exit(run(MODULE, INPUTS, WEIGHTS, PASSES, FAILURE, {how}))
'''


def _source(reduced: Reduced, target, origin, spelling: Spelling, passes, stored_arrays) -> str:
    case, failure, trial_ = reduced.case, reduced.failure, reduced.trial
    inputs, weights = "None  # no number is needed", []
    if case.inputs is not None:
        kinds = [v.type.dtype for v in case.module.main.arguments]
        rows = [
            _array(a, f"input{i}", k, stored_arrays)
            for i, (a, k) in enumerate(zip(case.inputs, kinds, strict=True))
        ]
        inputs = _listed(rows)
    for digest, name in weight_names(case.module).items():
        array = case.module.weights[digest]
        weights.append(_array(array, name, dtype(array.dtype), stored_arrays))
    counted = f"{case.ops} op{'s' * (case.ops != 1)}"
    whole = f"{reduced.before} ops of {origin}" if origin else f"{reduced.before} ops"
    files = [*spelling.files, *([f"{NAME}.npz"] if stored_arrays else [])]
    how: dict[str, Any] = {"target": target}
    if trial_.options:
        how["options"] = dict(trial_.options)
    if failure.how == END_TO_END and trial_.tolerance != DEFAULT_TOLERANCE:
        how["tolerance"] = trial_.tolerance
    if failure.how == NEVER_ENDS:
        how["pass_seconds"] = trial_.pass_seconds
    used = inputs + "".join(weights)
    recipes = [n for n in (*RECIPES, "array", "stored") if f"{n}(" in used]
    stored = '\nSTORED = Path(__file__).with_suffix(".npz")\n' if stored_arrays else ""
    return _FILE.format(
        title=_clean(f"Pass {failure.pass_label} fails on {counted}: {failure.note}"),
        name=NAME,
        version=core_compiler.__version__,
        origin=_clean(f"Reduced from {whole} by `workbench reduce`."),
        beside=f" and, beside this file, {', '.join(files)}" if files else "",
        imports=_imports(spelling, recipes, bool(stored_arrays)),
        stored=stored,
        module=_quoted(print_module(case.module)),
        inputs=inputs,
        weights=_listed(weights),
        passes="".join(passes),
        failure=_failure_source(failure),
        how=", ".join(f"{k}={_text(v)}" for k, v in how.items()),
    )


def _imports(spelling: Spelling, recipes: Sequence[str], stored: bool) -> str:
    lines = ["import sys"] + ["from pathlib import Path"] * stored
    lines += ["", "from core_compiler.debug.failure import Failure"]
    if recipes:
        lines.append(f"from core_compiler.debug.recipes import {', '.join(sorted(recipes))}")
    lines += [
        "from core_compiler.pipelines.pipeline import Step",
        "from core_compiler.driver.reproducer import run",
    ]
    own = spelling.lines()
    if spelling.files:  # bytecode would survive an edit with the same time stamp and size
        own = ["sys.dont_write_bytecode = True  # so that edits of these are read", *own]
    return "\n".join([*lines, *([""] if own else []), *own]) + "\n"


def _failure_source(failure: Failure) -> str:
    parts = list(map(_text, (failure.pass_label, failure.how, failure.what)))
    if failure.how == RAISED:
        parts.append(_text(failure.location))
    if failure.adversarial:
        parts.append("adversarial=True")
    return f"Failure({', '.join(parts)})"


def _step(step: Step, spelling: Spelling) -> str:
    limit = "" if step.limit is None else f", {step.limit}"
    return f"    Step({_text(step.label)}, {spelling.of(step.pass_)}{limit}),\n"


def _array(array: np.ndarray, name: str, kind, stored_arrays: dict[str, np.ndarray]) -> str:
    text, stored = expression_for(array, name, kind)
    if stored:
        stored_arrays[name] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return text


def _listed(rows: Sequence[str]) -> str:
    return "[" + "".join(f"\n    {row}," for row in rows) + ("\n]" if rows else "]")


def _quoted(text: str) -> str:
    """Return a module's text as a raw string literal, or as an ordinary one if that fails."""
    plain = '"""' not in text and "\\" not in text
    return f'"""\\\n{text}"""' if plain else repr(text)


def _text(value: Any) -> str:
    """Return ``value`` as Python, with double-quoted strings where possible."""
    if isinstance(value, str) and repr(value) == f"'{value}'" and '"' not in value:
        return f'"{value}"'
    return repr(value)


def _clean(text: str) -> str:
    """Return foreign text made safe for a docstring."""
    return " ".join(text.replace("\\", "/").replace('"""', "'''").split())
