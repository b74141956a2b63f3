"""Whose session a browser may join, and what every answer of the server says.

Bokeh lets a browser name the session that it wants (an argument, a header, or a token that nobody
has to sign), and asks of a websocket only that somebody has signed in.  Here the server alone makes
sessions and signs their tokens, and a websocket joins only a session of its own user.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from bokeh.server.urls import per_app_patterns
from bokeh.util.token import get_session_id
from panel.io.server import DocHandler, WSHandler
from tornado.ioloop import IOLoop
from tornado.web import HTTPError, OutputTransform, RequestHandler
from typing_extensions import override

from workbench.app import hosts
from workbench.app.access import Access
from workbench.app.workspace import Workspace

_NAMING = ("bokeh-session-id", "bokeh-token")


class Document(DocHandler):
    """The page; whoever names the session that it is to be of is refused.  ``workspace`` and
    ``first``, what a bare address shows, are set by :func:`guard`."""

    workspace: Workspace
    first: str = ""

    @override
    async def prepare(self) -> None:
        hosts.refuse_unknown(self)
        if any(self.get_arguments(name) for name in _NAMING) or (
            "Bokeh-Session-Id" in self.request.headers
        ):
            raise HTTPError(403)
        await super().prepare()

    @override
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """The recordings that it shows are opened before it is made: that may take a while, and the
        loop is everybody's."""
        access = self.workspace.access
        asked = self.request.query or self.first
        names = [dict(parse_qsl(asked)).get(name, "") for name in ("run", "other")]
        held = []
        if access.role(access.user_of(self)) is not None and any(names):
            held = await IOLoop.current().run_in_executor(None, self.workspace.hold, names)
        try:
            made: Any = super().get(*args, **kwargs)
            if made is not None:  # None: sent away to sign in
                await made
        finally:
            for run in held:
                self.workspace.release(run)


class Socket(WSHandler):
    """The websocket of a page; ``access`` (:func:`guard`) knows who has signed in."""

    access: Access

    @override
    async def prepare(self) -> None:
        hosts.refuse_unknown(self)
        await super().prepare()

    @override
    async def _async_open(self, token: str) -> None:
        session = await self.application_context.create_session_if_needed(
            get_session_id(token), self.request, token
        )
        context = session.document.session_context
        owner = self.access.user_in(context.request.cookies) if context else None
        if context is None or owner != self.access.user_of(self):
            self.close(reason="this session is somebody else's")
            return
        await super()._async_open(token)


def guard(workspace: Workspace, first: str = "") -> None:
    """Have Bokeh serve the page by these handlers, and nothing that other pages could include
    (``autoload.js``, which makes sessions too).  ``first``: the query that a bare address means."""
    Socket.access, Document.workspace, Document.first = workspace.access, workspace, first
    per_app_patterns[:] = [(r"/ws", Socket), (r"/?", Document)]


class Absent(RequestHandler):
    """Panel imports any module that an address under ``components/`` names, for whoever asks; the
    page has no use for that."""

    @override
    def prepare(self) -> None:
        raise HTTPError(404)


class Headers(OutputTransform):
    """What every answer says: no page from elsewhere shows it in a frame, for its clicks would be
    ours, and none sends a browser to another site by an address without a scheme."""

    @override
    def transform_first_chunk(
        self, status_code: int, headers: Any, chunk: bytes, finishing: bool
    ) -> tuple[int, Any, bytes]:
        headers["X-Frame-Options"] = "SAMEORIGIN"
        headers["Content-Security-Policy"] = "frame-ancestors 'self'"
        headers["X-Content-Type-Options"] = "nosniff"
        # Panel takes what an address names as the page to go to for a path of ours; to a browser
        # more than one slash names another host.
        if headers.get("Location", "").strip().startswith("//"):
            headers["Location"] = "/"
        return status_code, headers, chunk
