"""Pipeline edits as plain data for recordings.

They include the code of the user's own passes, so that the compile can be repeated elsewhere.
"""

from __future__ import annotations

import sys
import types
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from core_compiler.passes.base import Pass
from core_compiler.pipelines import python_text
from core_compiler.pipelines.pipeline import OPTIONAL, PipelineEdit
from core_compiler.support.errors import UserError

#: Maximum length of a pass's text (characters).
MAX_TEXT = 200_000
#: Texts that were loaded as passes, by the name of the module that each became.
TEXTS: dict[str, str] = {}
#: The text before a class whose dependencies in its cell or script cannot be written.
_IMPORTS = "from dataclasses import dataclass\n\nfrom core_compiler.passes.base import Pass\n\n\n"


def edit_facts(edit: PipelineEdit, with_text: bool = True) -> dict[str, Any]:
    """Return ``edit`` as recordings store it; ``with_text``: with the code of inserted passes."""
    return {
        "skip": list(edit.skip),
        "limits": dict(edit.limits),
        "options": {k: dict(v) for k, v in edit.options.items()},
        "order": list(edit.order),
        "repeat": list(edit.repeat),
        "cuts": {name: list(cuts) for name, cuts in edit.cuts.items()},
        "insert": [
            {"place": place, **pass_facts(pass_, with_text)} for place, pass_ in edit.insert
        ],
    }


def pass_facts(pass_: Pass, with_text: bool = True) -> dict[str, Any]:
    """Return the data from which a pass can be recreated.

    An importable module is stored by name, anything else by its text (only if ``with_text``).
    """
    kind = type(pass_)
    item: dict[str, Any] = {"pass": pass_.to_text()}
    changed = {
        f.name: str(getattr(pass_, f.name))
        for f in fields(pass_)
        if getattr(pass_, f.name) != f.default
    }
    if changed:
        item["options"] = changed
    home = sys.modules.get(kind.__module__)
    if type(OPTIONAL.get(pass_.name())) is kind:
        item["source"] = pass_.name()
    elif kind.__module__ in TEXTS:
        item |= {"code": TEXTS[kind.__module__], "class": kind.__name__}
    elif "." in kind.__module__:
        item["source"] = f"{kind.__module__}:{kind.__qualname__}"
    else:
        item |= _text_of(kind, home)
    file = Path(getattr(home, "__file__", None) or "").name
    if file and "source" not in item:
        item["file"] = file
    if not with_text:
        item.pop("code", None)
    return item


def _text_of(kind: type, home: types.ModuleType | None) -> dict[str, str]:
    """Return the text of a class as a file of its own.

    For a class in a notebook cell or the running script, it contains the class and its
    dependencies: the rest of the script is no part of the pass.
    """
    file = getattr(home, "__file__", None)
    try:
        main = kind.__module__ == "__main__"
        text = _of_main(kind) if main else Path(file or "").read_text("utf-8")
    except (OSError, UnicodeDecodeError, UserError):
        return {}
    return {"code": text, "class": kind.__name__} if len(text) <= MAX_TEXT else {}


def _of_main(kind: type) -> str:
    with suppress(UserError):
        if len(text := python_text.standalone(kind)) <= MAX_TEXT:
            return text
    return _IMPORTS + python_text.definition(kind)  # its dependencies cannot be written
