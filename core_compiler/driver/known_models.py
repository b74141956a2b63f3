"""Models that were compiled before, as far as that can be told before the import.

The kernels of a new model are compiled by processes whose start takes as long as an import: they
are started before it. A known model's kernels are in the cache, and the processes would be in the
way. A wrong guess only costs time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.runtime.kernel_cache import toolchain
from core_compiler.support.errors import UserError

KIND = "known"


def key_of(model: Any, inputs: Sequence | None, target: str) -> str:
    """Return a key that equal models share; different ones may share it too."""
    kind = type(model)
    parts = [toolchain(), target, f"{kind.__module__}.{kind.__qualname__}"]
    if isinstance(model, str | Path):
        parts.append(str(model))
    if hasattr(model, "named_modules"):  # of torch
        parts += [f"{name} {type(module).__qualname__}" for name, module in model.named_modules()]
    parts += [f"{getattr(x, 'dtype', '')} {tuple(getattr(x, 'shape', ()))}" for x in inputs or ()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_known(key: str) -> bool:
    """Return whether a model of this key has been compiled with the user's cache."""
    return CacheFolder().get(KIND, key, "known") is not None


def remember(key: str) -> None:
    """Note that a model of this key has been compiled."""
    with suppress(UserError):  # a cache that cannot be written to may hold all the kernels
        CacheFolder().put(KIND, key, {"known": b""})
