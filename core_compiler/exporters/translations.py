"""The table of an exporter: how it writes each core op that its format has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core_compiler.exporters.base import short
from core_compiler.ir import Op
from core_compiler.ops.base import view

#: ``(emitter, view of op, *operands)``: it returns the result, or several.
Handler = Callable[..., Any]


class Translations(dict[str, Handler]):
    """Handlers by the names of ops, ``add`` for ``core.add``.

    ``forms``: by the same names, ``(emitter, view of op)``: whether the format has this form of an
    op; other forms are expanded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forms: dict[str, Callable[[Any, Any], bool]] = {}

    def core(
        self, *names: str, when: Callable[[Any, Any], bool] | None = None
    ) -> Callable[[Handler], Handler]:
        """Register a handler for these core ops, for the forms of them for which ``when`` holds."""

        def enter(handler: Handler) -> Handler:
            for name in names:
                self[name] = handler
                if when is not None:
                    self.forms[name] = when
            return handler

        return enter

    def lacks(self, emitter: Any, op: Op, reasons: Mapping[str, str]) -> str:
        """Return why there is no handler of this form of an op, or ""."""
        name = short(op)
        if name not in self:
            return reasons.get(name, "no translation")
        form = self.forms.get(name)
        return "" if form is None or form(emitter, view(op)) else "no equivalent of this form"


def is_empty(op: Op) -> bool:
    """Return whether an op without regions has no elements as its results."""
    return not op.regions and all(v.type.elements == 0 for v in op.results)
