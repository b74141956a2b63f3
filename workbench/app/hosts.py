"""Under which names the server answers.

A page elsewhere whose name is made to point here (DNS rebinding) is of one origin with us to a
browser, and to Tornado, which compares the origin with the ``Host`` header alone.  So the host
itself has to be known.  A bare IP address is no name that somebody else could point here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from bokeh.server.util import match_host
from tornado.web import HTTPError, RequestHandler


def refuse_unknown(handler: RequestHandler) -> None:
    """HTTPError 421 (RFC 9110, 15.5.20) where a request names a host that is not ours.  Ports are
    not compared: a proxy may leave them out."""
    origins = getattr(handler.application, "websocket_origins", ())  # Bokeh's keeps them
    if not known(handler.request.host, origins):
        raise HTTPError(421, "no such host: name it with --origin", reason="Misdirected Request")


def known(host: str, origins: Iterable[str]) -> bool:
    """Whether a ``Host`` header (``name``, ``name:port``, ``[IPv6]:port``) names one of ``origins``
    (``name:port``; ``*`` stands for anything between dots) or is an IP address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return any(match_host(name, origin.lower().partition(":")[0]) for origin in origins)
