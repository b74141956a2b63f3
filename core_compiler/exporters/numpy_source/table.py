"""The table of translations, each of which returns an expression."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from core_compiler.exporters.numpy_source.text import atom, dtype_text
from core_compiler.exporters.translations import Translations
from core_compiler.ir import DType, dtype
from core_compiler.ir.views import OpView

if TYPE_CHECKING:
    from core_compiler.exporters.numpy_source.exporter import Writer

F32, I32 = dtype("f32"), dtype("i32")

__all__ = ["TABLE", "cast", "core", "in_f32"]


#: ``add`` for ``core.add`` -> ``handler(writer, view of op, *operands)``: the expression of the
#: results (a tuple if there are several).  Operands are names, calls and indices, which need
#: no parentheses.  Operands of an elementwise op may not be broadcast yet, and scalars next to an
#: array are literals.
TABLE = Translations()
core = TABLE.core


def cast(expression: str, wanted: DType) -> str:
    return f"{atom(expression)}.astype({dtype_text(wanted)})"


def in_f32(handler):
    """Wrap a handler to widen float operands narrower than f32 and narrow the op's results."""

    @wraps(handler)
    def wide(w: Writer, op: OpView, *operands: str) -> str:
        given = [
            cast(x, F32) if _is_narrow(value.type.dtype) else x
            for x, value in zip(operands, op.operands, strict=True)
        ]
        made = handler(w, op, *given)
        narrow = op.operands and _is_narrow(op.operands[0].type.dtype)
        wanted: Any = op.results[0].type.dtype
        if not narrow or not _is_narrow(wanted):
            return made
        return cast(made, wanted)

    return wide


def _is_narrow(kind: DType) -> bool:
    return kind.is_float and kind.bits < 32
