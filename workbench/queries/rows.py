"""Rows of the inspector, as plain data: a fact, a text, a link, and sections of them."""

from __future__ import annotations

from typing import Any

#: The longest text of one attribute or IR line.
MAX_TEXT = 600
#: The most ops, rewrites or values of one list.
MAX_LISTED = 12
TIMES = "\u00d7"


def as_section(title: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "rows": rows}


def as_fact(name: str, text: Any, go: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"kind": "fact", "name": name, "text": cut(str(text)), "go": go}


def as_text(text: str) -> dict[str, Any]:
    return {"kind": "text", "text": cut(text)}


def as_link(text: str, detail: str, go: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "link", "text": cut(text), "detail": cut(detail), "go": go}


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def short_type(kind: Any) -> str:
    """Return a type in short form: ``f32 1x64x56x56``, with the layout if it is not row-major."""
    shape = getattr(kind, "shape", None)
    if shape is None:
        return str(kind)
    text = f"{kind.dtype} {TIMES.join(map(str, shape)) or 'scalar'}"
    order, strides = getattr(kind, "order", None), getattr(kind, "strides", None)
    if order:
        text += f", order {','.join(map(str, order))}"
    if strides:
        text += f", strides {','.join(map(str, strides))}"
    return text


def short_path(path: str) -> str:
    """Return the last three parts of a path, which are enough to recognize a file."""
    parts = path.replace("\\", "/").split("/")
    return "/".join(parts[-3:])
