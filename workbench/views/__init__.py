"""What each view shows, as plain data: one file a view, a function of the recording and the sight.

A view has ``key(run, sight)``, which says what its data depend on, and ``data(run, sight)``, the
JSON-able data (with NumPy arrays) that its browser module draws.  ``Empty`` says why there is
nothing to show, and what to do about it.
"""

from __future__ import annotations


class Empty(Exception):
    """There is nothing to show; the message says why and what would bring something."""
