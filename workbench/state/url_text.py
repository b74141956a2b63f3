"""Long texts in a URL, compressed: a link then carries a whole pass that somebody wrote.

Nothing is kept on the server for it: a link works after a restart and on another machine.
"""

from __future__ import annotations

import base64
import binascii
import zlib

#: Texts up to here stand as they are: they can be read in the address.
PLAIN = 1000
#: The longest text of one part of the URL, as it stands there; the servers and browsers that are
#: common take at least four times as much for all of it.
MAX_SHORT = 12_000
#: The longest text that comes out of one part (a URL is untrusted, and zeros compress well).
MAX_FULL = 250_000
#: No text of a part begins with it: they are JSON.
_MARK = "z."


def short(text: str) -> str:
    """``text`` as the URL has it; empty where it is too long for any link."""
    if len(text) <= PLAIN and not text.startswith(_MARK):
        return text
    if len(text) > MAX_FULL:
        return ""
    made = _MARK + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    return made if len(made) <= MAX_SHORT else ""


def full(text: str) -> str:
    """What :func:`short` made ``text`` of; empty where it makes no sense."""
    if len(text) > MAX_SHORT:
        return ""
    if not text.startswith(_MARK):
        return text
    coded = text[len(_MARK) :]
    try:
        data = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
        unpacked = zlib.decompressobj().decompress(data, 4 * MAX_FULL)
        return found if len(found := unpacked.decode()) <= MAX_FULL else ""
    except (ValueError, binascii.Error, zlib.error):
        return ""
