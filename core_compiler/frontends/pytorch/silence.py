"""Silence while torch tries what may fail."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def silent() -> Iterator[None]:
    """What torch says of itself (warnings, its log, the program at which it gave up) reaches
    nobody: whether what it tries succeeds is all that is asked."""
    disabled = logging.root.manager.disable
    said = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
