"""Frontends translate a framework's graph to tensor IR; each is imported on first use."""

from core_compiler.frontends.base import Imported

__all__ = ["Imported"]
