"""The command line: ``workbench COMMAND ...``; every command also speaks JSON.

Exit codes: 0 done, 1 the answer is no (a check failed, a comparison is off), 2 bad input, 3 this
machine cannot do it, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
from collections.abc import Sequence

from core_compiler import __version__
from core_compiler.errors import UserError

#: Command -> (module, one line).  A module has ``add_arguments(parser)`` and ``run(arguments)``,
#: which answers the exit code or None.  Only the module of the command asked for is imported.
COMMANDS = {
    "open": ("open_page", "open a model, a model file or a recording in the page"),
    "compile": ("compile_model", "compile and record"),
    "run": ("run_model", "execute, and compare with a framework"),
    "profile": ("profile_model", "time every kernel, beside other frameworks"),
    "passes": ("show_passes", "what each pass did"),
    "diff": ("show_diff", "the IR before and after a pass"),
    "op": ("show_op", "one op's life through the passes"),
    "memory": ("show_memory", "buffers, offsets, lifetimes, the peak"),
    "kernels": ("show_kernels", "kernels with sources, machine code and timings"),
    "bisect": ("bisect_model", "find the pass and the rewrite that changed the numbers"),
    "query": ("query_recording", "ask a recording in SQL"),
    "export": ("export_recording", "a recording as one file to share, or a stage as text"),
    "models": ("list_models", "the sample models"),
    "targets": ("list_targets", "the installed targets, and the ops they know"),
    "doctor": ("check_machine", "what this machine has, lacks, and what to do about it"),
}

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.  A user's mistake is one line, never a traceback."""
    # The IR is a large graph that lives on: collecting often finds nothing and costs its size.
    gc.set_threshold(50_000, 20, 20)
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next((w for w in words if not w.startswith("-")), None)
    wants_json = "--json" in words
    try:
        parsed = build_parser(command).parse_args(words)
        if parsed.command is None:
            raise _Usage("no command is given")
        module = importlib.import_module(f"workbench.commands.{COMMANDS[parsed.command][0]}")
        code = module.run(parsed) or 0
        sys.stdout.flush()
        return code
    except _Usage as error:
        where = f"workbench {command}" if command in COMMANDS else "workbench"
        return report(UserError(str(error), where, f"see {where} --help"), wants_json)
    except UserError as error:
        return report(error, wants_json)
    except MemoryError:
        return report(UserError("out of memory", "", "use a smaller model or batch", 3), wants_json)
    except KeyboardInterrupt:
        stopped = UserError("stopped", "", "what was recorded is kept", INTERRUPTED)
        return report(stopped, wants_json)
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing to tell anybody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def report(error: UserError, as_json: bool) -> int:
    """Tell a mistake on one line (or as JSON on standard output); returns its exit code."""
    if as_json:
        print(json.dumps(error.to_json()))
    else:
        print(f"workbench: {' '.join(str(error).split())}", file=sys.stderr)
    return error.exit_code


class _Usage(Exception):
    """argparse found a mistake."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise _Usage(" ".join(message.split()))


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; the arguments of ``command`` alone are filled in."""
    parser = _Parser(
        prog="workbench",
        description="Compile ML models step by step, and see into it.",
        epilog="exit codes: 0 done, 1 the answer is no, 2 bad input, 3 this machine cannot, "
        "130 stopped",
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
