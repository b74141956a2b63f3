"""Runs commands of ``workbench`` in this process, as a user would, and says what came of them.

Imported in a child of the server: nothing of ours is imported before the tree is chosen.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

#: Exit codes of the command line.
GREEN, RED, BUG = 0, 1, 70


def run(words: Sequence[str]) -> dict[str, Any]:
    """The command's exit code, what it said, the passes that it named, its seconds."""
    from core_compiler.driver import compilation
    from workbench.commands import cli

    made: list[Any] = []
    out, err = io.StringIO(), io.StringIO()
    started = time.perf_counter()
    quiet = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with quiet[0], quiet[1], compilation.watched(made.append):
        try:
            code = cli.main(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else BUG
    seconds = time.perf_counter() - started
    answer = _answer(out.getvalue())
    error = err.getvalue()
    found = {
        "kind": "command",
        "code": code,
        "seconds": round(seconds, 3),
        "named": named(answer, made, error),
        "said": _said(answer, error),
    }
    return found


def _answer(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return json.loads(line)
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return {}


def named(answer: dict, made: Sequence[Any], error: str) -> list[list[str]]:
    """Pairs of the pass (or "import", "gradients") and the rule, op or kernel that is blamed.

    From the answer's ``failures``; where the command has none yet, from the checks of the compile
    that it ran, the pass that a message names, the node that differs most.
    """
    if answer.get("failures"):
        return [
            [_first(f.get("pass")), _first(f.get("rule") or f.get("op"))]
            for f in answer["failures"][:8]
        ]
    found = []
    for compilation in made:
        for at, records in compilation.checks.items():
            for record in records:
                if record.verdict == "failed":
                    rule = record.rewrite.rule if record.rewrite is not None else record.note
                    found.append([_first(compilation.stages[at].name), str(rule)])
    for text in (*_told(answer).values(), error):
        for label in re.findall(
            r"raised in pass (\S+?)\)|the module after (\S+) is|pass (\w+)", text
        ):
            name = next(part for part in label if part)
            found.append([_first(name), "error"])
    return [list(pair) for pair in dict.fromkeys(map(tuple, found))][:8]


def _told(answer: dict) -> dict[str, str]:
    """What and where of an error that the command reported."""
    error = answer.get("error")
    return {k: str(error.get(k, "")) for k in ("what", "where")} if isinstance(error, dict) else {}


def _first(label: Any) -> str:
    """The pass of a label: ``fold_constants#2`` is ``fold_constants``."""
    return re.split(r"[#+]", str(label or ""))[0]


def _said(answer: dict, error: str) -> str:
    """The line that says most: of a traceback the last, of a check what it counted."""
    if "checks" in answer:
        return json.dumps({k: answer[k] for k in ("checks", "against", "verdict") if k in answer})
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    told = _told(answer)
    return (f"{told['what']} ({told['where']})" if told else lines[-1] if lines else "")[:400]


def probe(words: Sequence[str], clean: bool = False) -> dict[str, Any]:
    """What a command compiles, to compare with what the ``clean`` sources compile: a digest of the
    last module with its kernels, digests of the results on several inputs, of each kernel's source,
    and of its loops; of the clean sources also of the loops before each step of its schedule."""
    from core_compiler.driver import compilation
    from workbench.commands import cli

    made: list[Any] = []
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        with compilation.watched(made.append):
            cli.main(list(words))
        if words[0] == "train":
            answer = _answer(out.getvalue())
            values = [f"{answer.get('digest')} {answer.get('loss')}"]
        else:
            values = [_results(made[-1], inputs) for inputs in _inputs(made[-1])]
    return {"kind": "probe", "text": _text(made[-1]), "values": values, **_kernels(made[-1], clean)}


def _text(made: Any) -> str:
    from core_compiler.ir.text import print_module

    found = hashlib.sha256(print_module(made.module).encode())
    for name, kernel in sorted(made.kernels.items()):
        found.update(f"{name}\0{kernel.source}".encode())
    return found.hexdigest()


def _kernels(made: Any, clean: bool) -> dict[str, Any]:
    from core_compiler.ir.text import print_function

    def digests(functions: Iterable[Any]) -> list[str]:
        return sorted({_digest(print_function(f)) for f in functions})

    schedules = made.facts.get("schedules") or {}
    steps = {n: digests(s.function for s in s.steps) for n, s in schedules.items() if clean}
    return {
        "kernels": {name: _digest(kernel.source) for name, kernel in made.kernels.items()},
        "steps": steps,
        # What a launch has to give beside the arguments of the plain loops is no part of a text.
        "loops": {
            name: digests((s.function, *s.cores.values()))
            for name, s in schedules.items()
            if s.launch is None
        },
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _inputs(made: Any) -> list[list[Any]]:
    """The model's own inputs: those of the example, others, and some that hurt."""
    import numpy as np

    own = [np.array(a) for a in made.inputs[: len(made.inputs) - len(made.state)]]
    random, special = np.random.default_rng(7), []
    hurting = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38, 0.5, 1.5, -2.5, 6.0, 1.0])
    for array in own:
        if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            special.append(random.choice(hurting, array.shape).astype(array.dtype))
        else:
            special.append(array)
    scaled = [a * a.dtype.type(-3) if a.dtype.kind == "f" else a for a in own]
    return [own, scaled, special]


def _results(made: Any, inputs: list[Any]) -> str:
    import numpy as np

    try:
        with np.errstate(all="ignore"):
            results = made(*inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]
    found = hashlib.sha256()
    for array in results:
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        found.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class InProcess:
    """A pool of compile processes that has none: kernels are compiled where they are asked for.

    Starting a process and its libraries would cost more than the kernels of a small model.
    """

    def __init__(self, workers: int, time_limit: float = 0):
        self.workers = workers

    def warm(self, compiler: str) -> None:
        pass

    def close(self) -> None:
        pass

    def run(self, jobs: Sequence[Any]) -> Any:
        from core_compiler.runtime import compile_worker
        from core_compiler.runtime.compile_pool import KernelCompileError

        for job in jobs:
            reply = compile_worker.respond(
                {"name": job.name, "source": job.source, "compiler": job.compiler}
            )
            if "refused" in reply:
                raise KernelCompileError(reply["refused"][0], job.name, reply["refused"][1])
            if "error" in reply:
                raise KernelCompileError(
                    f"does not compile ({reply['error'].splitlines()[0][:200]})",
                    job.name,
                    "report it with the kernel's source",
                    reply["trace"],
                )
            yield job, reply


def enter(module: str | None = None) -> str:
    """Import the command line and ``module``; what a module raises that cannot be imported."""
    try:
        if module is not None:
            __import__(module)
        import core_compiler.driver.session  # noqa: F401
        from core_compiler.frontends.stablehlo import isolated
        from core_compiler.runtime import kernel_cache
        from workbench.commands import (  # noqa: F401
            cli,
            compile_model,
            train_model,
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    # A child's child would import the clean sources behind the links of a mutant's tree.
    isolated.import_isolated = isolated.import_in_process
    kernel_cache._pool_of = functools.cache(lambda workers, process: InProcess(workers))
    sys.argv = ["workbench"]
    return ""
