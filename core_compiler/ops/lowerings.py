"""How the declared ops become loops: ``lower`` of each declaration, as one table.

Composites have no row: a kernel runs their decomposition.  A third party's op gives its hook to its
own declaration.
"""

from __future__ import annotations

from dataclasses import replace

from core_compiler.kernels import hooks, index_maps, lower_custom
from core_compiler.kernels.lowering import use_declarations
from core_compiler.ops.base import REGISTRY, definition
from core_compiler.ops.builder import decomposed
from core_compiler.ops.elementwise import BINARY, COMPARISONS, TESTS, UNARY

_ELEMENTWISE = (
    *(row[0] for table in (UNARY, TESTS, BINARY, COMPARISONS) for row in table),
    "select", "cast", "bitcast",
)  # fmt: skip

HOOKS: dict[str, hooks.Hook] = {
    **{name: hooks.Elementwise(name) for name in _ELEMENTWISE},
    "constant": hooks.Constant(),
    "iota": hooks.Constant(),
    "broadcast": hooks.IndexMap(index_maps.broadcast),
    "reshape": hooks.IndexMap(index_maps.reshape),
    "transpose": hooks.IndexMap(index_maps.transpose),
    "stop_gradient": hooks.IndexMap(index_maps.same),
    "distribute": hooks.IndexMap(index_maps.same),
    "slice": hooks.IndexMap(index_maps.slice_),
    "reverse": hooks.IndexMap(index_maps.reverse),
    "pad": hooks.IndexMap(index_maps.pad),
    "concat": hooks.IndexMap(index_maps.concat),
    "dynamic_slice": hooks.IndexMap(index_maps.dynamic_slice),
    "dynamic_update_slice": hooks.Part(index_maps.dynamic_update_slice, index_maps.update_starts),
    "take": hooks.IndexMap(index_maps.take),
    "take_along": hooks.IndexMap(index_maps.take_along),
    "gather_nd": hooks.IndexMap(index_maps.gather_nd),
    **{f"reduce_{k}": hooks.Reduction(k) for k in ("sum", "prod", "max", "min", "and", "or")},
    "argmax": hooks.Reduction("argmax"),
    "argmin": hooks.Reduction("argmin"),
    "matmul": hooks.Contraction(),
    "contract": hooks.Contraction(),
    "conv": hooks.Convolution(),
    "conv_transpose": hooks.Convolution(transposed=True),
    "conv_weight_gradient": hooks.WeightGradient(),
    "max_pool": hooks.Window("max"),
    "avg_pool": hooks.Window("mean"),
    "max_pool_positions": hooks.Window("positions"),
    "max_pool_gradient": hooks.WindowGradient("max"),
    "avg_pool_gradient": hooks.WindowGradient("mean"),
    **{name: hooks.Scan(name[3:]) for name in ("cumsum", "cumprod", "cummax", "cummin")},
    **{name: hooks.Custom(build) for name, build in lower_custom.BUILDERS.items()},
}

for _name, _hook in HOOKS.items():
    _kind = f"core.{_name}"
    REGISTRY[_kind] = replace(REGISTRY[_kind], lower=_hook)

use_declarations(definition, decomposed)
