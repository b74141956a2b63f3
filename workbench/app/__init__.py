"""The workbench's page, served on this machine.  Importing this package does not import panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core_compiler.errors import UserError


def serve(
    opened: str | Path | None = None,
    port: int = 5006,
    address: str = "127.0.0.1",
    open_browser: bool = True,
    allow_code: bool = False,
    *,
    root: Path | None = None,
    job: dict[str, Any] | None = None,
) -> None:
    """Serve the page until Ctrl-C.  The first line printed is its URL, which answers by then.

    ``opened``: a recording (``.run``) to open, or a model to compile and show (with the options
    ``job``: frontend, target, sizes, check, execute); None shows the start page.  ``port`` 0 takes
    any free one.  On an address other than this machine's own, ``package.module:function`` is off
    unless ``allow_code``.  ``root``: the cache folder whose ``recordings/`` is the library.
    UserError where the port is in use, the recording cannot be opened, or panel is not installed.
    """
    try:
        from workbench.app import server
    except ModuleNotFoundError as error:
        if error.name not in ("panel", "param", "bokeh", "tornado"):
            raise
        raise UserError("the page needs panel, which is not installed", "open",
                        "pip install 'compiler-workbench[ui]'", 3) from None  # fmt: skip
    server.serve(opened, port, address, open_browser, allow_code, root, job)
