"""The command line ``workbench COMMAND ...``; every command supports JSON output.

Exit codes: 0 done, 1 the answer is no (a check failed, a comparison differs), 2 bad input, 3 this
machine cannot do it, 70 a bug of ours (with its traceback), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from core_compiler import __version__
from core_compiler.support.errors import BAD_INPUT, CANNOT_HERE, STOPPED, UserError, nearest
from workbench.commands.printing import OutputLost, printable, say

#: Command -> (module, one line). A module has ``add_arguments(parser)`` and ``run(arguments)``,
#: which returns the exit code or None. Only the module of the requested command is imported.
COMMANDS = {
    "open": ("open_page", "open a model, a model file or a recording in the page"),
    "serve": ("serve_team", "serve the page to several users, with sign-in"),
    "compile": ("compile_model", "compile and record"),
    "run": ("run_model", "execute, and compare with a framework"),
    "train": ("train_model", "train with the compiled step; every machine computes the same bits"),
    "verify": ("verify_receipts", "repeat an iteration of a training run and compare its hashes"),
    "diverge": ("diverge_runs", "find where two training runs diverge: iteration, op, element"),
    "profile": ("profile_model", "time every kernel, and compare with other frameworks"),
    "passes": ("show_passes", "what each pass did"),
    "diff": ("show_diff", "the IR before and after a pass"),
    "op": ("show_op", "follow one op through the passes"),
    "why-not": ("ask_why_not", "why two ops were not fused, or why a rule was not applied"),
    "advise": ("advise_run", "hazards of a run: their cost, the evidence, what to try"),
    "memory": ("show_memory", "buffers, offsets, lifetimes, the peak"),
    "lines": ("show_lines", "what each line of the model costs"),
    "numerics": ("show_numerics", "which pass changed the values; statistics of values"),
    "kernels": ("show_kernels", "kernels with sources, machine code and timings"),
    "bisect": ("bisect_model", "find the pass and the rewrite that changed the values"),
    "reduce": ("reduce_model", "reduce a failure to a small standalone reproducer"),
    "show": ("show_view", "print the contents of a view of the page"),
    "query": ("query_recording", "query a recording with SQL"),
    "export": ("export_recording", "a recording as one file to share, or a stage as text"),
    "report": ("write_report", "a recording as one HTML file with the page's views, offline"),
    "runs": ("list_runs", "the library of runs: search, tags, notes, the trash"),
    "models": ("list_models", "the sample models"),
    "targets": ("list_targets", "the installed targets, and the ops they support"),
    "coverage": ("show_coverage", "which ops of each framework are supported"),
    "doctor": ("check_machine", "check this machine: what is installed, missing, how to fix it"),
}

#: The exit code of a bug of ours (``EX_SOFTWARE`` of sysexits.h).
BUG = 70
_OURS = ("core_compiler", "workbench", "widgets", "sample_models")
#: Seconds within which a second Ctrl-C is ignored, so that the cleanup after the first one
#: completes.
GRACE = 2.0
#: System errors that no other input would avoid: the machine is at fault.
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENOMEM}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code; a user's mistake is one line, never a traceback."""
    # The IR is a large, long-lived graph: frequent collections find nothing and cost time in its
    # size.
    gc.set_threshold(50_000, 20, 20)
    if arguments is None:  # this process is ours: print a traceback if native code crashes
        with suppress(AttributeError, OSError, ValueError):  # there is no standard error
            faulthandler.enable()
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next((w for w in words if not w.startswith("-")), None)
    wants_json = "--json" in words
    parsed = None
    with _CtrlC() as ctrl_c:
        try:
            parsed = build_parser(command).parse_args(words)
            parsed.command_line = words
            if parsed.command is None:
                raise _Usage("missing command")
            module = importlib.import_module(f"workbench.commands.{COMMANDS[parsed.command][0]}")
            return module.run(parsed) or 0
        except OutputLost as lost:
            return _handle_lost_output(lost)
        except _Usage as error:
            return report(_usage(str(error), command), wants_json)
        except UserError as error:
            is_final = error.exit_code == STOPPED or ctrl_c.pressed is None
            return report(error if is_final else _interrupted(parsed), wants_json)
        except MemoryError:
            full = UserError("out of memory", "", "use a smaller model or batch", CANNOT_HERE)
            return report(full, wants_json)
        except KeyboardInterrupt:
            return report(_interrupted(parsed), wants_json)
        except Exception as error:
            if ctrl_c.pressed:  # a library converted the interrupt
                return report(_interrupted(parsed), wants_json)
            missing = (getattr(error, "name", None) or "").partition(".")[0]
            if isinstance(error, ModuleNotFoundError) and missing not in _OURS:
                return report(_not_installed(missing), wants_json)
            if isinstance(error, OSError) and error.strerror:
                return report(_system_error(error), wants_json)
            return report(_bug(error), wants_json)


def report(error: UserError, as_json: bool) -> int:
    """Report an error on one line (or as JSON on standard output); return its exit code."""
    if as_json:
        try:
            say(json.dumps(_as_json(error)))
        except OutputLost as lost:
            return _handle_lost_output(lost) or error.exit_code
    else:
        print(f"workbench: {printable(' '.join(str(error).split()))}", file=sys.stderr)
    return error.exit_code


def _as_json(error: UserError) -> dict:
    """Return an error as JSON; if a pass ended a checked compile, with its ``failures``.

    They have the same form as those of a compile that completed.
    """
    finding = getattr(error, "finding", None)
    if finding is None:
        return error.to_json()
    from workbench.model import failures

    return {**error.to_json(), "failures": [failures.finding_failure(finding)]}


def _usage(message: str, command: str | None) -> UserError:
    where = f"workbench {command}" if command in COMMANDS else "workbench"
    fix = f"see {where} --help"
    if command is not None and command not in COMMANDS:
        message, fix = f"unknown command {command!r}", nearest(command, COMMANDS, fix)
    return UserError(message, where, fix)


def _interrupted(parsed) -> UserError:
    """Return the error for a command stopped by Ctrl-C, with what it left."""
    output = getattr(parsed, "output", None)
    has_output = output is not None and Path(output).exists()
    return UserError(
        "stopped",
        str(output) if has_output else "",
        "what was recorded is kept" if has_output else "nothing was recorded",
        STOPPED,
    )


def _system_error(error: OSError, where: str = "") -> UserError:
    """Return the error for a failure of the system: a full disk, a folder that is not writable."""
    is_machine_fault = error.errno in _MACHINE
    return UserError(
        error.strerror or str(error),
        str(error.filename or where),
        "free some disk space, or choose another path" if is_machine_fault else "check the path",
        CANNOT_HERE if is_machine_fault else BAD_INPUT,
    )


def _not_installed(package: str) -> UserError:
    """Return the error for a missing package of an extra."""
    fix = "pip install 'compiler-workbench[all]' (`workbench doctor` lists what is missing)"
    return UserError(f"{package} is not installed", "", fix, CANNOT_HERE)


def _bug(error: Exception) -> UserError:
    """Return the error for an unexpected exception, whose traceback is printed."""
    import traceback

    traceback.print_exception(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return UserError(
        f"{type(error).__name__}: {error}"[:300],
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}",
        "this is a bug in workbench: please report it with the traceback",
        BUG,
    )


def _handle_lost_output(lost: OutputLost) -> int:
    """Handle lost standard output: a full disk is reported, a closed pipe is not."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return (
        0 if lost.error.errno == errno.EPIPE else report(_system_error(lost.error, "output"), False)
    )


class _CtrlC:
    """A context in which Ctrl-C raises KeyboardInterrupt once, and ``pressed`` records it."""

    def __init__(self) -> None:
        self.pressed: float | None = None
        self._set = False

    def __enter__(self) -> _CtrlC:
        handler = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        if main and handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._stop)
            self._set = True
        return self

    def __exit__(self, *_) -> None:
        # After a Ctrl-C the interpreter's shutdown must not be interrupted either: it restores
        # Python handlers, and the next press would kill it, but it keeps SIG_IGN.
        if self._set:
            after = signal.default_int_handler if self.pressed is None else signal.SIG_IGN
            signal.signal(signal.SIGINT, after)

    def _stop(self, *_) -> None:
        now = time.monotonic()
        if self.pressed is None or now - self.pressed > GRACE:
            self.pressed = now
            raise KeyboardInterrupt


class _Usage(Exception):
    """argparse found a mistake."""


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str):
        raise _Usage(" ".join(message.split()))


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the arguments of ``command`` are filled in."""
    parser = _Parser(
        prog="workbench",
        description="Compile ML models step by step, and inspect every step.",
        epilog="exit codes: 0 done, 1 the answer is no, 2 bad input, 3 not possible on this "
        "machine, 70 a bug, 130 stopped",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, (module, line) in COMMANDS.items():
        sub = commands.add_parser(name, help=line, description=line, allow_abbrev=False)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        if name == command:
            importlib.import_module(f"workbench.commands.{module}").add_arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
