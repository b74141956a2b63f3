"""The translations that do not depend on a data-dependent size of an operand."""

from __future__ import annotations

from core_compiler.frontends.pytorch.aten import TABLE, elementwise

_NAMES = (
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "permute", "transpose", "t",
    "expand", "clone", "alias", "detach", "cat", "stack", "slice", "select", "index_select",
    "embedding", "index", "sum", "mean", "amax", "amin", "any", "all", "argmax", "argmin",
    "softmax", "_softmax", "log_softmax", "_log_softmax", "cumsum", "topk", "sort", "mm", "bmm",
    "matmul", "linear", "addmm", "layer_norm", "batch_norm", "conv1d", "conv2d", "conv3d",
    "nonzero", "nonzero_static", "argwhere", "masked_select", "index_put",
)  # fmt: skip
#: Handlers, under all of their names.
RUN_TIME_SIZE_HANDLERS = frozenset(
    handler
    for name, handler in TABLE.items()
    if handler.__module__ == elementwise.__name__ or name.partition(".")[0] in _NAMES
)
