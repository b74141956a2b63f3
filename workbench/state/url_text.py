"""Compression of long texts in a URL: a link can then contain the whole text of a user pass.

Nothing is stored on the server for it: a link works after a restart and on another machine.
"""

from __future__ import annotations

import base64
import binascii
import zlib

#: Texts up to this length are not compressed, so that they can be read in the address.
PLAIN = 1000
#: The maximum length of one part of the URL, after compression; common servers and browsers accept
#: at least four times as much for the whole URL.
MAX_SHORT = 12_000
#: The maximum length of a decompressed part (a URL is untrusted, and zeros compress well).
MAX_FULL = 250_000
#: The prefix of compressed parts; other parts are JSON and never start with it.
_MARK = "z."


def short(text: str) -> str:
    """Return ``text`` in the form of the URL; empty if it is too long for any link."""
    if len(text) <= PLAIN and not text.startswith(_MARK):
        return text
    if len(text) > MAX_FULL:
        return ""
    made = _MARK + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    return made if len(made) <= MAX_SHORT else ""


def full(text: str) -> str:
    """Return the text from which :func:`short` made ``text``; empty if it is invalid."""
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
