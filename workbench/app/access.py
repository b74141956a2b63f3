"""Access control for a server with several users.

Panel signs users in (passwords or OAuth) and keeps the name in a signed cookie. Here a name is
mapped to a role: an *editor* can do everything, a *viewer* can look at any run and change nothing.
Roles of signed-in users were chosen over links that carry a token: links are forwarded and logged,
and their users are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core_compiler.support.errors import UserError

EDITOR, VIEWER = "editor", "viewer"
#: Matches every user who has signed in.
ANY_USER = "*"


class Refused(UserError):
    """A viewer requested an action that needs the editor role."""

    def __init__(self, what: str):
        super().__init__(
            "you have read-only access",
            what,
            "ask the server's administrator to make you an editor",
        )


@dataclass(frozen=True)
class Access:
    """The names of editors and viewers.

    Without ``sign_in``, every user who reaches the server is an editor, or a viewer if ``viewers``
    contains ``*``. ``options``: the arguments of :func:`panel.io.server.get_server` for sign-in.
    """

    sign_in: bool = False
    editors: frozenset[str] = frozenset()
    viewers: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)

    def role(self, user: str | None) -> str | None:
        """Return ``editor``, ``viewer``, or None for a user without access.

        A name takes precedence over ``*``, and of two roles the lesser one wins.
        """
        if not self.sign_in:
            return VIEWER if ANY_USER in self.viewers else EDITOR
        if not user:
            return None
        for name in (user, ANY_USER):
            if name in self.viewers:
                return VIEWER
            if name in self.editors:
                return EDITOR
        return None

    def user_of(self, handler: Any) -> str | None:
        """Return the user who has signed in, for a Tornado request; None if nobody has."""
        if not self.sign_in:
            return None
        from panel import config

        name = handler.get_secure_cookie("user", max_age_days=config.oauth_expiry)
        return name.decode() if name else None

    def user_in(self, cookies: Mapping[str, str]) -> str | None:
        """Return the user who has signed in, from the cookies of a request; None if nobody has.

        Panel's own ``state.user`` trusts an unsigned cookie (``is_guest``).
        """
        from panel import config
        from tornado.web import decode_signed_value

        signed = cookies.get("user")
        if not self.sign_in or not signed:
            return None
        name = decode_signed_value(
            config.cookie_secret, "user", signed, max_age_days=config.oauth_expiry
        )
        return name.decode() if name else None

    def user_of_session(self) -> str | None:
        """Return the user who has signed in, for the Bokeh session that is being created."""
        from panel import state

        return self.user_in(state.cookies)


def names(texts: Iterable[str]) -> frozenset[str]:
    """Return the names in comma-separated lists."""
    return frozenset(n.strip() for text in texts for n in text.split(",") if n.strip())
