"""Session ownership, and the headers of every response of the server.

Bokeh lets a browser name the session that it wants (an argument, a header, or a token that need
not be signed), and requires of a websocket only that a user has signed in. Here the server alone
creates sessions and signs their tokens, and a websocket joins only a session of its own user.
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
    """The page; requests that name a session are refused.

    ``workspace`` and ``first``, the state of a bare address, are set by :func:`guard`.
    """

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
        """Open the shown recordings before the page is created.

        This may take a while, and all pages share the loop.
        """
        access = self.workspace.access
        page_query = self.request.query or self.first
        names = [dict(parse_qsl(page_query)).get(name, "") for name in ("run", "other")]
        opened = []
        if access.role(access.user_of(self)) is not None and any(names):
            opened = await IOLoop.current().run_in_executor(None, self.workspace.acquire_all, names)
        try:
            made: Any = super().get(*args, **kwargs)
            if made is not None:  # None: redirected to sign in
                await made
        finally:
            for run in opened:
                self.workspace.release(run)


class Socket(WSHandler):
    """The websocket of a page; ``access`` (:func:`guard`) knows the signed-in user."""

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
            self.close(reason="this session belongs to another user")
            return
        await super()._async_open(token)


def guard(workspace: Workspace, first: str = "") -> None:
    """Make Bokeh serve the page with these handlers.

    Nothing is served that other pages could include (``autoload.js``, which creates sessions too).
    ``first``: the query that a bare address means.
    """
    Socket.access, Document.workspace, Document.first = workspace.access, workspace, first
    per_app_patterns[:] = [(r"/ws", Socket), (r"/?", Document)]


class Absent(RequestHandler):
    """A handler that disables Panel's ``components/``, which imports any module an address names.

    The page does not use it.
    """

    @override
    def prepare(self) -> None:
        raise HTTPError(404)


class Headers(OutputTransform):
    """The headers of every response, against framing and redirects by other sites.

    A framed page could receive clicks meant for ours; an address without a scheme could redirect a
    browser to another site.
    """

    @override
    def transform_first_chunk(
        self, status_code: int, headers: Any, chunk: bytes, finishing: bool
    ) -> tuple[int, Any, bytes]:
        headers["X-Frame-Options"] = "SAMEORIGIN"
        headers["Content-Security-Policy"] = "frame-ancestors 'self'"
        headers["X-Content-Type-Options"] = "nosniff"
        # Panel treats an address as the page to redirect to for one of our paths; for a browser
        # more than one slash names another host.
        if headers.get("Location", "").strip().startswith("//"):
            headers["Location"] = "/"
        return status_code, headers, chunk
