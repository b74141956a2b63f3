"""Suppression of torch's output during attempts that may fail."""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

#: The suppression is process-wide, so threads take turns; otherwise the one that ends last would
#: restore the other's suppression.
_LOCK = threading.RLock()


@contextmanager
def suppress_output() -> Iterator[None]:
    """Suppress torch's output in this context: warnings, its log, the program at which it failed.

    Only the success of the attempt matters.
    """
    output = io.StringIO()
    with _LOCK, warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output):
        disabled = logging.root.manager.disable
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
