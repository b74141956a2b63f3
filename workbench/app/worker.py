"""The worker process ``python -m workbench.app.worker``: one job, compile or search, from stdin.

A compile's job has ``model``, ``out`` (the recording to write) and optionally ``frontend``,
``target``, ``sizes``, ``check``, ``against`` (compare the import's values with the framework's),
``execute``, ``threads``, ``trust``, ``edit`` (see ``workbench.model.edits``; the code of inserted
passes runs here), ``target_options``, ``pass_timeout`` (seconds), ``append`` (a recording: its
program is compiled again, executed, and its times added; nothing is written to ``out``), ``hold``:
wait before each pass for a command, a JSON object on a further line
(:mod:`workbench.model.stepping`).

With ``diverge``, the folders of two training runs, it searches where they differ; the result is
stored for ``recording`` under ``key`` (see ``workbench.model.divergences``). With ``bisect``
(``recording``, its ``identity``, ``tolerance``, ``inputs``: an ``.npz`` or ""), a compile's job
searches for its first bad pass instead and stores that (``workbench.model.first_bad_pass``).

Each line on stdout is a JSON object:
``{"progress": {"what", "done", "total"}}``, ``{"paused": ...}`` for a compile that waits, at last
``{"done": path}`` or ``{"error": {"what", "where", "fix"}}``.

``$COMPILER_WORKBENCH_JOB_MEMORY``: the bytes of address space it may take; ``..._SECONDS``: how
long it may run; ``..._BOUND``: it ends when nothing reads its lines any more.

SIGINT (or SIGTERM) stops it; the recording keeps the finished stages. Exit codes are the command
line's: 0, 2 and 3 for errors of the input or the machine, 130 stopped.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from typing_extensions import override

from core_compiler.ir.events import Observer
from core_compiler.support.errors import UserError
from workbench.model.stepping import Hold

#: The exit code of a compile that was stopped.
STOPPED = 130
#: Seconds of processor time and bytes of memory that are effectively no limit.
NO_LIMIT, NO_MEMORY = 10**9, 1 << 60
#: How much longer than its limit this runs by itself (seconds): the server stops it, if it still
#: can.
LATE = 60.0
#: The time it may take to stop before it is killed (seconds).
PATIENCE = 15.0
_FIELDS = {"model", "out", "frontend", "target", "sizes", "check", "against", "execute",
           "threads", "trust", "edit", "target_options", "pass_timeout", "hold",
           "bisect", "append"}  # fmt: skip
_DIVERGE = {"model", "out", "diverge", "recording", "other", "key"}


class _ProgressLines(Observer):
    """Progress lines on stdout: the start of each task, and at most ten updates a second."""

    def __init__(self) -> None:
        self._last, self._what = 0.0, ""

    @override
    def progress(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what or done == total or now - self._last >= 0.1:
            self._last, self._what = now, what
            _report({"progress": {"what": what, "done": done, "total": total}})


def main() -> int:
    """Run the job on stdin; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        _lower_priority()
        _apply_limits()
        sys.stdout = sys.stderr  # output of user code must not mix with our lines
        lines = _stdin()
        job = _read_job(next(lines, ""))
        if "diverge" in job:
            _diverge(job)
        elif "bisect" in job:
            _bisect(job)
        elif "append" in job:
            _execute(job)
        else:
            _run(job, lines)
    except UserError as error:
        _report(error.to_json())
        return error.exit_code
    except KeyboardInterrupt:
        _report({"cancelled": True})
        return STOPPED
    except MemoryError:
        _report(UserError("out of memory", "compile", "use a smaller model or batch", 3).to_json())
        return 3
    except Exception as error:
        import traceback

        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
        fix = "report this compiler bug with the recording"
        _report(UserError(f"{type(error).__name__}: {error}", where, fix).to_json())
        return 1
    _report({"done": job["out"]})
    return 0


def _read_job(text: str) -> dict[str, Any]:
    try:
        job = json.loads(text)
    except ValueError as error:
        raise UserError(f"the job is not JSON ({error})", "stdin", "send one JSON object") from None
    if isinstance(job, dict) and job.keys() == _DIVERGE:
        return job
    if not isinstance(job, dict) or not {"model", "out"} <= job.keys() <= _FIELDS:
        fix = f"send model and out, and no fields but {', '.join(sorted(_FIELDS))}"
        raise UserError("missing or unknown fields in the job", "stdin", fix)
    return job


def _run(job: Mapping[str, Any], commands: Iterable[str] = ()) -> None:
    lines = _ProgressLines()
    from core_compiler.driver.compilation import Cancelled
    from workbench.model import jobs

    model, options = _model(job, lines)
    try:
        jobs.compile(
            model,
            job.get("target") or "cpu",
            options,
            path=job["out"],
            observer=lines,
            execute=bool(job.get("execute")),
            against=_framework_of(model) if job.get("against") else "",
            cancelled=lambda: _stopped,
            hold=_hold(commands) if job.get("hold") else None,
        )
    except Cancelled:
        raise KeyboardInterrupt from None


def _execute(job: Mapping[str, Any]) -> None:
    lines = _ProgressLines()
    from core_compiler.driver.compilation import Cancelled
    from workbench.model import jobs

    model, options = _model(job, lines)
    try:
        jobs.execute(
            model,
            job.get("target") or "cpu",
            options,
            job["append"],
            observer=lines,
            cancelled=lambda: _stopped,
        )
    except Cancelled:
        raise KeyboardInterrupt from None


def _framework_of(model: Any) -> str:
    """Return the framework whose nodes a model has; UserError if there is none."""
    from workbench.model import peers

    framework = peers.FRAMEWORK_OF_FRONTEND.get(model.spec.frontend)
    if framework is None:
        raise UserError(
            f"comparing each value is not supported for models imported by {model.spec.frontend}",
            model.name,
            "open it without comparing",
        )
    return framework


def _model(job: Mapping[str, Any], lines: _ProgressLines) -> tuple[Any, Any]:
    """Return the imported model of a job, and its compile options."""
    lines.progress(f"importing {job['model']}", 0, 0)
    from core_compiler.driver.compilation import Options
    from core_compiler.pipelines.pipeline import build
    from core_compiler.targets import target
    from workbench.model import edits, models, recorded_model
    from workbench.model.spec import read_spec

    spec = read_spec(
        job["model"], job.get("frontend"), bool(job.get("trust")), **(job.get("sizes") or {})
    )
    edit, chosen = edits.from_json(job.get("edit")), dict(job.get("target_options") or {})
    level, training = recorded_model.pipeline_start(spec)
    # Reject invalid options before the import.
    build(target(job.get("target") or "cpu"), chosen, edit, level, training)
    model = models.load(spec)
    options = Options(
        check=bool(job.get("check")),
        threads=int(job.get("threads") or 0),
        edit=edit,
        target=chosen,
        pass_timeout=job.get("pass_timeout"),
    )
    return model, options


def _stdin() -> Iterator[str]:
    """Yield the lines of stdin.

    It is read without Python's own buffer: a thread that waits in it when the interpreter ends
    would crash the process.
    """
    rest = b""
    while part := os.read(0, 1 << 16):
        *lines, rest = (rest + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")


def _hold(lines: Iterable[str]) -> Hold:
    """Return a hold that reads commands from the further lines of stdin.

    After the last it is cancelled.
    """
    commands: queue.Queue[Mapping[str, Any] | None] = queue.Queue()

    def read() -> None:
        for line in lines:
            with suppress(ValueError):
                command = json.loads(line)
                if isinstance(command, dict):
                    commands.put(command)
        commands.put(None)

    threading.Thread(target=read, daemon=True).start()
    return Hold(commands, _report, lambda: _stopped)


def _diverge(job: Mapping[str, Any]) -> None:
    lines = _ProgressLines()
    lines.progress("reading the receipts", 0, 0)
    from pathlib import Path

    from core_compiler.debug.which_pass import find
    from workbench.model import divergences
    from workbench.training import runs

    a, b = (runs.read(folder, lines) for folder in job["diverge"])
    found = find(a, b, lambda text: lines.progress(text, 0, 0))
    if found is not None:
        divergences.RESULTS.keep(Path(job["recording"]), job["key"], found.to_json())


def _bisect(job: Mapping[str, Any]) -> None:
    lines = _ProgressLines()
    from dataclasses import replace
    from pathlib import Path

    from workbench.model import first_bad_pass, reducing

    model, options = _model(job, lines)
    if not options.pass_timeout:
        options = replace(options, pass_timeout=reducing.PASS_SECONDS)
    request = job["bisect"]
    recording, file = Path(request["recording"]), str(request["inputs"])
    inputs = first_bad_pass.read_inputs(Path(file), model) if file else model.inputs
    search = first_bad_pass.Search(
        model, job.get("target") or "cpu", options, inputs, request["tolerance"]
    )
    result, made, found = search.run(lines.progress)
    key = first_bad_pass.key_of(request["identity"], request["tolerance"], file)
    result |= {"inputs": file, "reduced": None}
    first_bad_pass.RESULTS.keep(recording, key, result)
    if found is None:
        return
    lines.progress("reduce the program", 0, 0)
    result["reduced"] = first_bad_pass.reduced(search, made, found, lines.progress)
    first_bad_pass.RESULTS.keep(recording, key, result)


#: Whether a signal to stop has arrived. Python drops an exception that is raised in a destructor,
#: so the compile checks this too.
_stopped = False


def _interrupt(*_: object) -> None:
    """Stop at the first signal; a second one must not disturb finishing the recording."""
    global _stopped
    if not _stopped:
        _stopped = True
        raise KeyboardInterrupt


def _lower_priority() -> None:
    """Lower this process's priority below the page's, which should stay responsive."""
    if hasattr(os, "nice"):
        os.nice(5)


def _apply_limits() -> None:
    """Apply the server's limits on memory (bytes) and time (seconds); end with it if requested."""
    memory, seconds, bound = (
        float(os.environ.get(f"COMPILER_WORKBENCH_JOB_{name}") or 0)
        for name in ("MEMORY", "SECONDS", "BOUND")
    )
    if memory or seconds:
        from core_compiler.support.subprocesses import hold_to

        cores = os.cpu_count() or 1
        hold_to(int(memory) or NO_MEMORY, int((seconds + LATE) * cores) if seconds else NO_LIMIT)
    if seconds or bound:
        after = seconds + LATE if seconds else None
        threading.Thread(target=_end_in_time, args=(after, bool(bound)), daemon=True).start()


def _end_in_time(seconds: float | None, bound: bool) -> None:
    """Stop this process after ``seconds``, or (``bound``) when nothing reads its output any more.

    The latter means that the server has gone, for whatever reason.
    """
    began = time.monotonic()
    while seconds is None or time.monotonic() - began < seconds:
        if bound and _is_reader_closed(sys.__stdout__):
            break
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)  # leads its group: children are killed too
    os._exit(STOPPED)


def _is_reader_closed(pipe: Any) -> bool:
    """Return whether the reading end of a pipe is closed."""
    if not hasattr(select, "poll"):
        return False
    watch = select.poll()
    watch.register(pipe.fileno(), 0)  # errors are always reported
    return any(what & select.POLLERR for _, what in watch.poll(0))


_answers = sys.stdout


def _report(line: Mapping[str, Any]) -> None:
    global _answers
    try:
        print(json.dumps(line), file=_answers, flush=True)
    except BrokenPipeError:
        # The page that started this process is gone; finishing the recording matters more.
        _answers = open(os.devnull, "w")  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
