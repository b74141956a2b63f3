"""Frontends: a framework's graph becomes tensor IR.  Each is imported only when it is used."""

from core_compiler.frontends.base import Imported

__all__ = ["Imported"]
