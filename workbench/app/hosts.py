"""Host names under which the server answers.

A foreign page whose name is made to resolve to this machine (DNS rebinding) has the same origin as
ours for a browser, and for Tornado, which compares the origin only with the ``Host`` header. The
host itself must therefore be known. A bare IP address is not a name that an attacker could make
resolve to this machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from bokeh.server.util import match_host
from tornado.web import HTTPError, RequestHandler


def refuse_unknown(handler: RequestHandler) -> None:
    """Raise HTTPError 421 (RFC 9110, 15.5.20) if a request names an unknown host.

    Ports are not compared: a proxy may omit them.
    """
    origins = getattr(handler.application, "websocket_origins", ())  # stored there by Bokeh
    if not known(handler.request.host, origins):
        raise HTTPError(421, "unknown host: allow it with --origin", reason="Misdirected Request")


def known(host: str, origins: Iterable[str]) -> bool:
    """Return whether a ``Host`` header is an IP address or matches one of ``origins``.

    The header is ``name``, ``name:port`` or ``[IPv6]:port``; an origin is ``name:port``, in which
    ``*`` matches anything between dots.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return any(match_host(name, origin.lower().partition(":")[0]) for origin in origins)
