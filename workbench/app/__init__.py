"""The workbench's page, served on this machine. Importing this package does not import panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError
from workbench.app.access import Access
from workbench.app.compiles import Limits
from workbench.app.uploaded import MAX_UPLOAD


def serve(
    opened: str | Path | None = None,
    port: int = 5006,
    address: str = "127.0.0.1",
    open_browser: bool = True,
    allow_code: bool = False,
    *,
    root: Path | None = None,
    job: dict[str, Any] | None = None,
    as_json: bool = False,
) -> None:
    """Serve the page until Ctrl-C; the first line printed is its URL, which is ready by then.

    ``opened``: a recording (``.run``) to open, or a model to compile and show (with the options
    ``job``: frontend, target, sizes, check, execute); None shows the start page. ``port`` 0 takes
    any free one. On an address other than localhost, ``package.module:function`` is disabled
    unless ``allow_code``. ``root``: the cache folder whose ``recordings/`` is the library.
    ``as_json``: the line is ``{"url": ...}``. UserError if the port is in use, the recording
    cannot be opened, or panel is not installed.
    """
    _server("open").serve(opened, port, address, open_browser, allow_code, root, job, as_json)


def serve_team(
    store: Path | None,
    port: int,
    address: str,
    access: Access,
    limits: Limits,
    *,
    allow_code: bool = False,
    max_upload: int = MAX_UPLOAD,
    quota: int = 0,
    origins: tuple[str, ...] = (),
    as_json: bool = False,
) -> None:
    """Serve a library to several users until Ctrl-C or SIGTERM.

    ``store``: the library's folder (None: the cache). ``access``: the roles of users. ``limits``
    of compiles; ``max_upload`` of a file and ``quota`` of all uploads of a user (of all users
    together without sign-in; 0: no limit) in bytes. On any address, files outside the store are
    not opened, and code runs only with ``allow_code``. ``origins``: additional hosts from which
    browsers connect. ``as_json`` and UserError as for :func:`serve`.
    """
    server = _server("serve")
    from workbench.app.workspace import Workspace

    workspace = Workspace(
        local=False,
        allow_code=allow_code,
        root=store,
        max_upload=max_upload,
        quota=quota,
        access=access,
        limits=limits,
    )
    server.run(workspace, port, address, origins=origins, as_json=as_json)


def _server(command: str) -> Any:
    try:
        from workbench.app import server
    except ModuleNotFoundError as error:
        if error.name not in ("panel", "param", "bokeh", "tornado"):
            raise
        raise UserError(
            "the page needs panel, which is not installed",
            command,
            "pip install 'compiler-workbench[ui]'",
            3,
        ) from None
    return server
