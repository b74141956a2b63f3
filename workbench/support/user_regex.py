"""Regular expressions typed by the user.

Python's matcher can take exponential time for a few characters and cannot be interrupted from
within, so it runs in a subprocess, which can be killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from core_compiler.support.errors import UserError

#: The time limit of a search (seconds).
PATIENCE = 2.0
_SEARCH = """
import json, re, sys
wanted, texts = json.load(sys.stdin)
try:
    matches = re.compile(wanted, re.IGNORECASE).search
except (re.error, OverflowError, RecursionError) as problem:
    json.dump({"problem": str(problem)}, sys.stdout)
else:
    json.dump({"found": [i for i, text in enumerate(texts) if matches(text)]}, sys.stdout)
"""


def matches(expression: str, texts: Sequence[str]) -> list[int]:
    """Return the indices of the ``texts`` that an expression matches, ignoring case.

    UserError if the expression is invalid, or takes too long.
    """
    command = [sys.executable, "-I", "-S", "-c", _SEARCH]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([expression, list(texts)]),
            text=True,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            "the regular expression takes too long",
            f"/{expression}/",
            "leave out nested repeats such as (a+)+",
        ) from None
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise UserError(
            f"invalid regular expression: {answer['problem']}",
            f"/{expression}/",
            "escape . ( [ * + ? with \\ to match them literally",
        )
    return answer["found"]
