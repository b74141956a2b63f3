"""The caches of transformers as trees of tensors, so that a model may return one."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any


def register_caches() -> None:
    """Let torch flatten the caches of transformers, if that is imported.

    These are `DynamicCache`, as transformers registers it, and the pair of them that
    encoder-decoders return.
    """
    if "transformers" not in sys.modules:
        return
    try:
        caches = importlib.import_module("transformers.integrations.executorch")
        caches.register_dynamic_cache_export_support()
        both = importlib.import_module("transformers.cache_utils").EncoderDecoderCache
    except (ImportError, AttributeError):  # an unknown version: the user can set use_cache=False
        return
    _register_pair(both)


def _register_pair(kind: Any) -> None:
    from torch.fx import _pytree as of_graphs
    from torch.utils import _pytree

    names = "self_attention_cache", "cross_attention_cache"

    def flatten(pair: Any) -> tuple[list, None]:
        return [getattr(pair, name) for name in names], None

    def flatten_with_keys(pair: Any) -> tuple[list, None]:
        return [(_pytree.GetAttrKey(name), getattr(pair, name)) for name in names], None

    with suppress(ValueError):  # it is registered already
        _pytree.register_pytree_node(
            kind,
            flatten,
            lambda parts, context: kind(*parts),
            serialized_type_name=f"{kind.__module__}.{kind.__name__}",
            flatten_with_keys_fn=flatten_with_keys,
        )
        of_graphs.register_pytree_flatten_spec(kind, lambda pair, spec: flatten(pair)[0])
