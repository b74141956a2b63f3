"""Recordings: one SQLite file (``*.run``) with everything that happened in a compile.

The compiler writes one through :class:`Recorder`, people look at it through :class:`Recording`,
also while it grows.  ``docs/recording.md`` documents the schema.
"""

from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder

__all__ = ["Recorder", "Recording"]
