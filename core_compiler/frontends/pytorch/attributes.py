"""Changes of a module's plain Python attributes during export."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def warn_of_attribute_changes(module: Any) -> Iterator[None]:
    """Warn about plain attributes that change during an export in this context.

    An export runs ``forward`` once and then restores attributes.  The program keeps the numbers,
    strings and tensors that the first call computes, so the warning names those that changed.
    """
    before = {name: _plain(part) for name, part in module.named_modules()}
    changed: dict[str, None] = {}

    def compare(*_: Any) -> None:
        for name, part in module.named_modules():
            after, first = vars(part), before.get(name, {})
            for attribute in first.keys() & after.keys():
                if _differ(first[attribute], after[attribute]):
                    changed[f"{name}.{attribute}" if name else attribute] = None

    hook = module.register_forward_hook(compare)
    try:
        yield
    finally:
        hook.remove()
    if changed:
        names = sorted(changed)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        warnings.warn(
            f"forward changes {shown}: the compiled model keeps the value after the first "
            "call; register it as a buffer if it must change",
            stacklevel=4,
        )


def _differ(first: Any, after: Any) -> bool:
    if first is after:
        return False
    return _is_tensor(first) or _is_tensor(after) or bool(after != first)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _plain(part: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(part).items()
        if name != "training" and (isinstance(value, int | float | str) or _is_tensor(value))
    }
