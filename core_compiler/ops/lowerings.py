"""How the declared ops become loops: ``lower`` of each declaration, as one table.

Composites have no row: a kernel runs their decomposition.  A third party's op gives its hook to its
own declaration.
"""

from __future__ import annotations

from dataclasses import replace

from core_compiler.lowering import custom
from core_compiler.lowering.lower import use_declarations
from core_compiler.ops import index_maps, lowering_hooks
from core_compiler.ops.base import REGISTRY, definition
from core_compiler.ops.builder import decomposed
from core_compiler.ops.elementwise import BINARY, COMPARISONS, TESTS, UNARY

_ELEMENTWISE = (
    *(row[0] for table in (UNARY, TESTS, BINARY, COMPARISONS) for row in table),
    "select", "cast", "bitcast",
)  # fmt: skip

HOOKS: dict[str, lowering_hooks.Hook] = {
    **{name: lowering_hooks.Elementwise(name) for name in _ELEMENTWISE},
    "constant": lowering_hooks.Constant(),
    "iota": lowering_hooks.Constant(),
    "broadcast": lowering_hooks.IndexMap(index_maps.broadcast),
    "reshape": lowering_hooks.IndexMap(index_maps.reshape),
    "transpose": lowering_hooks.IndexMap(index_maps.transpose),
    "stop_gradient": lowering_hooks.IndexMap(index_maps.same),
    "distribute": lowering_hooks.IndexMap(index_maps.same),
    "slice": lowering_hooks.IndexMap(index_maps.slice_),
    "reverse": lowering_hooks.IndexMap(index_maps.reverse),
    "pad": lowering_hooks.IndexMap(index_maps.pad),
    "concat": lowering_hooks.IndexMap(index_maps.concat),
    "dynamic_slice": lowering_hooks.IndexMap(index_maps.dynamic_slice),
    "dynamic_update_slice": lowering_hooks.Part(
        index_maps.dynamic_update_slice, index_maps.update_starts
    ),
    "take": lowering_hooks.IndexMap(index_maps.take),
    "take_along": lowering_hooks.IndexMap(index_maps.take_along),
    "gather_nd": lowering_hooks.IndexMap(index_maps.gather_nd),
    **{
        f"reduce_{k}": lowering_hooks.Reduction(k)
        for k in ("sum", "prod", "max", "min", "and", "or")
    },
    "argmax": lowering_hooks.Reduction("argmax"),
    "argmin": lowering_hooks.Reduction("argmin"),
    "matmul": lowering_hooks.Contraction(),
    "contract": lowering_hooks.Contraction(),
    "conv": lowering_hooks.Convolution(),
    "conv_transpose": lowering_hooks.Convolution(transposed=True),
    "conv_weight_gradient": lowering_hooks.WeightGradient(),
    "max_pool": lowering_hooks.Window("max"),
    "avg_pool": lowering_hooks.Window("mean"),
    "max_pool_positions": lowering_hooks.Window("positions"),
    "max_pool_gradient": lowering_hooks.WindowGradient("max"),
    "avg_pool_gradient": lowering_hooks.WindowGradient("mean"),
    **{name: lowering_hooks.Scan(name[3:]) for name in ("cumsum", "cumprod", "cummax", "cummin")},
    **{name: lowering_hooks.Custom(build) for name, build in custom.BUILDERS.items()},
}

for _name, _hook in HOOKS.items():
    _kind = f"core.{_name}"
    REGISTRY[_kind] = replace(REGISTRY[_kind], lower=_hook)

use_declarations(definition, decomposed)
