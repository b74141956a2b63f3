"""The configuration of a recorded training step, read back from its recording.

The recording stores the optimiser, its schedule and the loss scale as Python expressions; they are
read as data and never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.optimisers.loss_scale import Dynamic, Static
from core_compiler.training.optimisers.optimizers import OPTIMIZERS
from core_compiler.training.optimisers.schedules import (
    Constant,
    Cosine,
    Exponential,
    Linear,
    Step,
    Warmup,
)

#: The classes that a recording may use, by their names in it.
_CLASSES = {
    kind.__name__: kind
    for kind in (
        *OPTIMIZERS.values(),
        Constant,
        Cosine,
        Exponential,
        Linear,
        Step,
        Warmup,
        Dynamic,
        Static,
    )
}
#: The options of the configuration that later passes depend on, stored as plain values.
_PLAIN_OPTIONS: Mapping[str, tuple[type, ...]] = {
    "clip_norm": (int, float),
    "seed": (int,),
    "shards": (int,),
    "sync_batch_norm": (bool,),
    "precision": (str,),
    "recompute": (int, float),
    "keep_gradients": (bool,),
}
#: Longest text of an optimiser that is read (characters).
_MAX_LENGTH = 10_000


def training_of(facts: Any) -> Training:
    """Return the configuration of which :meth:`Training.facts` stored the facts that passes read.

    The loss, the initial values and the frozen parameters are in the recorded module. Raise
    UserError if the optimiser, its schedule or the loss scale is unknown.
    """
    held = facts if isinstance(facts, Mapping) else {}
    plain = {
        name: held[name]
        for name, kinds in _PLAIN_OPTIONS.items()
        if isinstance(held.get(name), kinds)
    }
    scale = held.get("loss_scale")
    return Training(
        loss=None,
        optimizer=_read("optimiser", held.get("optimizer")),
        loss_scale=None if scale is None else _read("loss scale", scale),
        **plain,
    )


def _read(what: str, text: Any) -> Any:
    try:
        if not isinstance(text, str) or len(text) > _MAX_LENGTH:
            raise ValueError("no text")
        made = _literal(ast.parse(text, mode="eval").body)
        if type(made) not in _CLASSES.values():
            raise ValueError("another class")
        return made
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        name = str(text).partition("(")[0][:80]
        raise UserError(
            f"unknown {what} {name!r}",
            "recorded training step",
            "compile the step again where its class is defined: cc.compile(model, "
            "batch, training=...)",
        ) from None


def _literal(node: ast.expr) -> Any:
    """Return a number, a text, a tuple of them, or an instance of :data:`_CLASSES`.

    Raise ValueError for any other expression.
    """
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _CLASSES or node.args:
            raise ValueError(name)
        return _CLASSES[name](**{str(k.arg): _literal(k.value) for k in node.keywords})
    if isinstance(node, ast.Tuple):
        return tuple(map(_literal, node.elts))
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    return ast.literal_eval(node)
