"""Who may do what on a server that several people use.

Panel signs people in (passwords or OAuth) and keeps the name in a signed cookie.  Here a name
becomes a role: an *editor* does everything, a *viewer* looks at any run and changes nothing.  Roles
of users who sign in were chosen over links that carry a token: links are forwarded and logged, and
nobody knows who uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core_compiler.support.errors import UserError

EDITOR, VIEWER = "editor", "viewer"
#: Stands for everybody who has signed in.
EVERYBODY = "*"


class Refused(UserError):
    """Somebody who may only look asked for more."""

    def __init__(self, what: str):
        super().__init__("you have read-only access", what,
                         "ask the server's administrator to make you an editor")  # fmt: skip


@dataclass(frozen=True)
class Access:
    """The names of editors and viewers.  Without ``sign_in`` everybody who reaches the server is
    an editor, or a viewer where ``viewers`` has ``*``.  ``options``: what
    :func:`panel.io.server.get_server` is given to have people sign in."""

    sign_in: bool = False
    editors: frozenset[str] = frozenset()
    viewers: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)

    def role(self, user: str | None) -> str | None:
        """``editor``, ``viewer``, or None for somebody who may not even look.  A name counts more
        than ``*``, and of two roles the lesser one counts."""
        if not self.sign_in:
            return VIEWER if EVERYBODY in self.viewers else EDITOR
        if not user:
            return None
        for name in (user, EVERYBODY):
            if name in self.viewers:
                return VIEWER
            if name in self.editors:
                return EDITOR
        return None

    def user_of(self, handler: Any) -> str | None:
        """Who has signed in, of a Tornado request; None where nobody has."""
        if not self.sign_in:
            return None
        from panel import config

        name = handler.get_secure_cookie("user", max_age_days=config.oauth_expiry)
        return name.decode() if name else None

    def user_in(self, cookies: Mapping[str, str]) -> str | None:
        """Who has signed in, by the cookies of a request; None where nobody has.  Panel's own
        ``state.user`` believes an unsigned cookie (``is_guest``)."""
        from panel import config
        from tornado.web import decode_signed_value

        signed = cookies.get("user")
        if not self.sign_in or not signed:
            return None
        name = decode_signed_value(config.cookie_secret, "user", signed,
                                   max_age_days=config.oauth_expiry)  # fmt: skip
        return name.decode() if name else None

    def user_of_session(self) -> str | None:
        """Who has signed in, of the Bokeh session that is being made."""
        from panel import state

        return self.user_in(state.cookies)


def names(texts: Iterable[str]) -> frozenset[str]:
    """The names in lists that are separated by commas."""
    return frozenset(n.strip() for text in texts for n in text.split(",") if n.strip())
