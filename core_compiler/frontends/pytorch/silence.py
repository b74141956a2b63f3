"""Silence while torch tries what may fail."""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

#: What is silenced belongs to the whole process: two threads take turns, else the one that ends
#: last brings the other's silence back.
_TURN = threading.RLock()


@contextmanager
def silent() -> Iterator[None]:
    """What torch says of itself (warnings, its log, the program at which it gave up) reaches
    nobody: whether what it tries succeeds is all that is asked."""
    said = io.StringIO()
    with _TURN, warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
        disabled = logging.root.manager.disable
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
