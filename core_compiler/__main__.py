"""``python -m core_compiler new-op|new-pass|new-view|new-target NAME``: the first files of one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core_compiler.driver import skeletons
from core_compiler.support.errors import UserError


def main(words: list[str] | None = None) -> int:
    """Write a skeleton with its test; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m core_compiler", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for kind, says in skeletons.KINDS.items():
        command = commands.add_parser(f"new-{kind}", help=says, description=says)
        command.add_argument("name", metavar="NAME", help="lower case, words joined by _")
        where = "the parent of its package" if kind == "target" else "the checkout"
        command.add_argument("--folder", type=Path, default=Path(), help=f"{where} (here)")
    given = parser.parse_args(words)
    try:
        for path in skeletons.write(given.command.removeprefix("new-"), given.name, given.folder):
            print(path)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
