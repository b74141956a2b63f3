"""Stored results of divergence searches between training runs, next to the recording."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from core_compiler.debug.which_pass import Change
from core_compiler.training.audit.diverge import Difference
from workbench.model.kept_results import Results


def key_of(identity: str, iteration: int, roots: tuple[str, str]) -> str:
    """Return the key of a result: the computation, and both runs up to where they diverge."""
    # The identity includes the version of the numerics contract.
    return hashlib.sha256("\n".join([identity, str(iteration), *roots]).encode()).hexdigest()


#: The types of a result: the op, or for two pipelines the pass.
_LIKE = tuple(
    json.loads(json.dumps(each.to_json()))
    for each in (Difference(0, True), Change(0, "", ("", "")))
)
#: The element types of the lists in a result.
_LISTS = {
    "element": int,
    "numbers": float,
    "history": str,
    "kernels": str,
    "how": str,
    "missing": str,
    "passing": str,
}
_PAIRS = ("numbers", "kernels", "how", "missing", "passing")


def _validated(found: Mapping[str, Any]) -> dict[str, Any] | None:
    example = _LIKE["pass" in found]
    try:
        found = {"missing": ["", ""], "passing": ["", ""], **found}  # older results lack them
        made = {name: type(part)(found[name]) for name, part in example.items()}
        for name in made.keys() & _LISTS.keys():
            made[name] = [_LISTS[name](each) for each in made[name]]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return made if all(len(made.get(name, "ab")) == 2 for name in _PAIRS) else None


def _describe(result: Mapping[str, Any]) -> str:
    return f"{result.get('op') or result.get('value')} is the first that differs"


RESULTS = Results(".diverge.json", _validated, _describe)
