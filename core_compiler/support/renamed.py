"""Attributes that had other names: a subclass that sets one is refused, instead of ignored."""

from __future__ import annotations

from collections.abc import Mapping


def refuse_old_names(cls: type, renamed: Mapping[str, str]) -> None:
    """Raise TypeError if ``cls`` sets an attribute under its name of version 0.1.

    ``renamed`` maps old names to new ones. An annotated attribute is an option of its own.
    """
    own = vars(cls)
    for old, new in renamed.items():
        if old in own and old not in own.get("__annotations__", {}):
            raise TypeError(f"{cls.__name__}.{old} was renamed to {new} in version 0.2.0")
