"""Recordings: one SQLite file (``*.run``) with everything that happened in a compile.

The compiler writes one through :class:`Recorder`, readers use :class:`Recording`, also while it
grows. ``docs/recording.md`` documents the schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_compiler.record.reader import Recording
    from core_compiler.record.recorder import Recorder

__all__ = ["Recorder", "Recording"]


def __getattr__(name: str):
    """Import on first use: reading or writing needs the IR, SQL (``record.file``) does not."""
    if name == "Recording":
        from core_compiler.record.reader import Recording

        return Recording
    if name == "Recorder":
        from core_compiler.record.recorder import Recorder

        return Recorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
