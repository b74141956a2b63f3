"""The one error a user sees: what went wrong, where, and what to do about it."""

from __future__ import annotations

#: Exit codes of the command line: bad input, and "this machine cannot do it".
BAD_INPUT = 2
CANNOT_HERE = 3


class UserError(Exception):
    """A mistake in the input or a limit of this machine, told in three short clauses.

    ``what`` went wrong, ``where`` (file, op, model line), and the ``fix`` to try.  The command line
    prints it as one line, or as ``{"error": {"what", "where", "fix"}}`` with ``--json``; it is
    never shown with a traceback.
    """

    def __init__(self, what: str, where: str = "", fix: str = "", exit_code: int = BAD_INPUT):
        self.what, self.where, self.fix, self.exit_code = what, where, fix, exit_code
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.fix}" if self.fix else text

    def __reduce__(self):
        return UserError, (self.what, self.where, self.fix, self.exit_code)

    def to_json(self) -> dict:
        return {"error": {"what": self.what, "where": self.where, "fix": self.fix}}


class InternalError(Exception):
    """The compiler broke one of its own rules: a bug of ours, never the user's input."""
