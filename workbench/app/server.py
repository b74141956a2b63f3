"""The server of the page: one address, its own resources, no external ones.

The host of a request and the websocket's origin are checked, uploads need the page's token, and a
URL is ready as soon as it is printed.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import panel as pn
from bokeh.io import curdoc
from panel.io.server import get_server
from tornado.httpclient import AsyncHTTPClient
from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError
from typing_extensions import override

from core_compiler.support.errors import UserError
from workbench.app import sessions
from workbench.app.access import EDITOR
from workbench.app.page import Page
from workbench.app.transfers import Download, Table, Upload
from workbench.app.workspace import Workspace
from workbench.state.view_state import VIEWS
from workbench.ui import browser_modules
from workbench.ui.page_frame import frame

HERE = Path(__file__).parent
LOCAL = ("127.0.0.1", "localhost", "::1")
#: The largest message of the websocket in bytes: views stay far below.
MAX_MESSAGE = 64 << 20
#: The largest body of a request in bytes; an upload has a limit of its own.
MAX_BODY = 1 << 20
#: How long a page that lost its connection is kept (milliseconds); its URL restores it anyway.
LOST_SESSION_MS = 15_000

TRANSFERS = {"upload": Upload, "file": Download, "runs.csv": Table}

_TEMPLATE = (
    (HERE / "page.html")
    .read_text(encoding="utf-8")
    .replace("{{ frame }}", frame(lambda name: f"{{{{ embed(roots.{name}) }}}}", VIEWS))
)
_STYLE = browser_modules.palette() + (HERE / "page.css").read_text(encoding="utf-8")
_KEPT = (HERE / "kept.js").read_text(encoding="utf-8")


class Health(RequestHandler):
    """The health check ``/health``: the server responds."""

    @override
    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.write("ok")


class Module(RequestHandler):
    """A module of the page, ``/modules/NAME-DIGEST.js``; its address changes with its text."""

    @override
    def initialize(self, modules: dict[str, tuple[str, str]]) -> None:
        self.texts = dict(modules.values())

    @override
    def get(self, name: str) -> None:
        text = self.texts.get(f"modules/{name}")
        if text is None:
            raise HTTPError(404)
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", "public, max-age=31536000, immutable")
        self.write(text)


def _modules() -> dict[str, tuple[str, str]]:
    """Return address and text of each module."""
    texts = {name: browser_modules.module_text(name) for name in browser_modules.NAMES}
    return {
        name: (f"modules/{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.js", text)
        for name, text in texts.items()
    }


class _Template(pn.Template):
    """A template without Panel's unused listing of all components for each one added."""

    @override
    def __repr__(self) -> str:
        return "Compiler Workbench"


def make_page(workspace: Workspace, first: str, addresses: dict[str, str]):
    """Return the function that makes a page for each session.

    ``first``: the state that a bare URL shows; ``addresses`` of the modules by name.
    """

    def page() -> pn.Template:
        arguments = pn.state.session_args or {}
        parts = {k: v[0].decode(errors="replace") for k, v in arguments.items() if v}
        query = urlencode(parts) if parts else first
        user = workspace.access.user_of_session()
        role = workspace.access.role(user)
        if role is None:  # the session bypassed Panel's own check
            raise PermissionError("not signed in")
        made = Page(workspace, curdoc(), query, user or "", role)
        pn.state.onload(made.browser.mark_ready)
        template = _Template(_TEMPLATE)
        template.add_variable("page_css", _STYLE)
        template.add_variable("kept_js", _KEPT)
        template.add_variable("modules", addresses)
        template.add_variable("viewer", role != EDITOR)
        template.add_variable("first_modules", made.first_modules())
        template.add_variable("opening", made.opening())
        for name, root in made.roots.items():
            template.add_panel(name, root)
        return template

    return page


def serve(
    opened: str | Path | None = None,
    port: int = 5006,
    address: str = "127.0.0.1",
    open_browser: bool = True,
    allow_code: bool = False,
    root: Path | None = None,
    job: dict | None = None,
    as_json: bool = False,
) -> None:
    """Serve the page until Ctrl-C; see :func:`workbench.app.serve`."""
    local = address in LOCAL
    given = (Path(opened),) if opened is not None and str(opened).lower().endswith(".run") else ()
    workspace = Workspace(local=local, allow_code=allow_code, given=given, root=root)
    first = _first_query(workspace, opened, job)
    run(workspace, port, address, first, open_browser, as_json=as_json)


def run(
    workspace: Workspace,
    port: int,
    address: str,
    first: str = "",
    open_browser: bool = False,
    origins: Iterable[str] = (),
    as_json: bool = False,
) -> None:
    """Serve a workspace's pages until Ctrl-C or SIGTERM; the first line printed is the URL.

    ``first``: the state that a bare URL shows; ``origins``: additional hosts (``name:port``) from
    which browsers may connect; ``as_json``: the line is ``{"url": ...}``.
    """
    port = _free_port(address, port)
    shown = "127.0.0.1" if address in ("0.0.0.0", "::", "") else address
    local = ("localhost", "127.0.0.1") if address in LOCAL else ()
    # Bokeh accepts no IPv6 address here; a page at one has its own origin anyway.
    hosts = {f"{name}:{port}" for name in (shown, *local) if ":" not in name} | set(origins)
    if shown != address:
        hosts.add(f"{socket.gethostname()}:{port}")
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    pn.config.set(notifications=False)
    texts = _modules()
    addresses = {name: address for name, (address, _) in texts.items()}
    options: dict[str, Any] = dict(workspace.access.options)
    if workspace.access.sign_in:
        pn.config.auth_template = options["logout_template"]
        pn.config.authorize_callback = lambda _: bool(
            workspace.access.role(workspace.access.user_of_session())
        )
    sessions.guard(workspace, first)
    server = get_server(
        make_page(workspace, first, addresses),
        port=port, address=address, websocket_origin=sorted(hosts),
        start=False, show=False, verbose=False, title="Compiler Workbench",
        extra_patterns=[(r"/health", Health), (r"/components/.*", sessions.Absent),
                        *((rf"/{name}", handler, {"workspace": workspace})
                          for name, handler in TRANSFERS.items()),
                        (r"/modules/([\w.-]+)", Module, {"modules": texts})],
        unused_session_lifetime_milliseconds=LOST_SESSION_MS,
        check_unused_sessions_milliseconds=5_000,
        websocket_max_message_size=MAX_MESSAGE, keep_alive_milliseconds=10_000,
        http_server_kwargs={"max_body_size": MAX_BODY}, sign_sessions=True,
        secret_key=secrets.token_urlsafe(32).encode(), **options,
    )  # fmt: skip
    server._tornado.add_transform(sessions.Headers)
    server.start()
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/" + (
        f"?{first}" if first else ""
    )
    print(json.dumps({"url": url}) if as_json else url, flush=True)
    if open_browser and _has_display():
        webbrowser.open(url)
    loop = IOLoop.current()
    getattr(loop, "asyncio_loop").set_exception_handler(_log_exception)  # noqa: B009 (tornado has no other)
    if not workspace.access.sign_in:
        loop.spawn_callback(_warm, url)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signum is signal.SIGHUP and signal.getsignal(signum) is signal.SIG_IGN:
            continue  # under nohup it outlives its terminal
        signal.signal(signum, lambda *_: loop.add_callback_from_signal(loop.stop))
    try:
        loop.start()
    finally:
        workspace.compiles.stop_all()
        workspace.uploads.stop()
        server.stop()
        gc.freeze()  # a last collection takes seconds to free memory that the exit frees anyway


def _log_exception(loop: Any, context: dict[str, Any]) -> None:
    """Log exceptions that nothing awaited, except writes to a page that was closed."""
    if not isinstance(context.get("exception"), (WebSocketClosedError, StreamClosedError)):
        loop.default_exception_handler(context)


async def _warm(url: str) -> None:
    """Request the page once, so that its initialization is done and frozen for the collector."""
    with suppress(Exception):  # any error is reported to the user who requests the page
        await AsyncHTTPClient().fetch(url, request_timeout=60)
    gc.freeze()


def _first_query(workspace: Workspace, opened: str | Path | None, job: dict | None) -> str:
    if opened is None:
        return ""
    from workbench.state.view_state import ViewState

    if str(opened).lower().endswith(".run"):
        path = Path(opened).expanduser().absolute()
        workspace.release(workspace.acquire(path))  # reports errors in it now
        return ViewState(run=workspace.library.name(path)).query()
    made = workspace.compiles.start(workspace.own_job(str(opened), job or {}))
    return ViewState(run=workspace.library.name(made.path)).query()


def _free_port(address: str, port: int) -> int:
    """Return ``port`` if it is free (0: any).

    UserError if it is in use or the address is not local.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OverflowError:
            raise UserError(
                f"invalid port {port}", "--port", "choose a number from 0 to 65535"
            ) from None
        except OSError as error:
            busy = error.errno in (98, 48)
            raise UserError(
                f"port {port} is in use" if busy else f"cannot listen ({error.strerror})",
                f"{address}:{port}",
                "stop the other server, or choose another --port (0: any free port)"
                if busy
                else "choose another --address or --port",
            ) from None
        return probe.getsockname()[1]


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
