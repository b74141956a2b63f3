"""Mixed precision: the dtypes, and what each op does with them.

A narrow float (bf16, f16) is *storage*: an op widens what it reads exactly, computes in f32 and
rounds its result once (numerics contract).  So the question is only which values are stored narrow.
Micikevicius et al., "Mixed precision training" (ICLR 2018); the lists of ``torch.autocast`` (2.13).

The table differs from torch's lists where f32 inside an op makes f32 around it needless:

- ``layer_norm``, ``rms_norm``, ``group_norm`` give f32 in torch.  Here they read and give what is
  stored, their statistics, scale and bias being f32; so does torch's ``batch_norm``.
- ``mean`` follows its operand in torch.  Here it is a sum like the others: f32.
- ``sqrt``, ``sin``, ``cos``, ``erf``, ``exp2`` and the running extremes follow in torch.  Here they
  keep f32 with the rest of their families (deviations, angles of positions).
- An f32 parameter beside a narrow value makes the result f32 in torch, unless it is the bias of a
  layer.  Here a parameter takes the dtype of what it meets: biases are ops of their own, and
  positions and embeddings would else widen all that comes after them.
- Scatters and ``atan2`` take the widest operand in torch.  Here they keep f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core_compiler.ir import DType, dtype
from core_compiler.support.errors import UserError, nearest

#: ``Training.precision`` -> what values are stored in.
PRECISIONS: Mapping[str, DType] = MappingProxyType({n: dtype(n) for n in ("f32", "bf16", "f16")})

#: Rounding to nearest is off by at most this share of a value, above the subnormals.
ROUNDING = MappingProxyType({dtype("bf16"): 2.0**-8, dtype("f16"): 2.0**-11})

#: Ops that round what they read and store what they make narrow: most of the work and of the bytes
#: is theirs.  How many of their operands (the first ones) are meant; a mask stays as it is.
NARROW: Mapping[str, int] = MappingProxyType({
    "matmul": 2, "contract": 2, "linear": 3,
    "conv": 2, "conv_transpose": 2, "conv_weight_gradient": 2,
    "attention": 3,
})  # fmt: skip

ALL = 1 << 30

#: Ops that follow their operands: narrow where all of these are, parameters and constants left out;
#: the widest decides.  Normalisations keep f32 parameters and statistics beside a narrow operand.
FOLLOWS: Mapping[str, int] = MappingProxyType({
    # -- what moves elements or chooses among them
    **dict.fromkeys(("broadcast", "reshape", "transpose", "slice", "reverse", "pad", "concat",
                     "dynamic_slice", "dynamic_update_slice", "take", "take_along", "gather_nd",
                     "stop_gradient", "select", "sort", "topk", "max", "min", "max_pool",
                     "reduce_max", "reduce_min"), ALL),
    # -- arithmetic whose results are no larger a range than its operands
    **dict.fromkeys(("neg", "abs", "add", "sub", "mul", "div", "avg_pool", "rotary_embedding"),
                    ALL),
    # -- activations
    **dict.fromkeys(("relu", "clamp", "leaky_relu", "hard_sigmoid", "hard_swish", "gelu", "silu",
                     "elu", "selu", "celu", "mish", "softsign", "sigmoid", "tanh"), ALL),
    # -- normalisations
    **dict.fromkeys(("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm"), 1),
})  # fmt: skip

#: Ops that read f32 and make f32, with the reason.
KEEPS: Mapping[str, str] = MappingProxyType({
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp"),
                    "small shares of a row would be lost"),
    **dict.fromkeys(("nll_loss", "cross_entropy", "mse_loss", "binary_cross_entropy"),
                    "the loss is f32"),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "softplus", "pow",
                     "sqrt", "rsqrt", "cbrt", "sinh", "cosh", "asinh", "acosh", "atanh"),
                    "the range of the results is another than that of the operands"),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
                    "an angle of many turns or near a pole would be lost"),
    **dict.fromkeys(("erf", "erfc"), "the tails would be lost"),
    **dict.fromkeys(("reduce_sum", "mean", "centre", "variance", "standard_deviation",
                     "reduce_prod", "cumsum", "cumprod", "scatter_along", "scatter_nd"),
                    "a sum of many elements leaves the range and the digits of its terms"),
    **dict.fromkeys(("cummax", "cummin"), "they stand among sums along an axis"),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "sign", "rem", "mod"),
                    "whole numbers above 2^8 or 2^11 would be lost"),
    **dict.fromkeys(("random_uniform", "random_normal"), "what they meet decides"),
    **dict.fromkeys(("all_reduce", "distribute"), "shards add up in f32"),
    **dict.fromkeys(("max_pool_gradient", "avg_pool_gradient"), "differentiation makes them"),
    **dict.fromkeys(("constant", "iota", "one_hot", "cast", "bitcast"),
                    "the program says which dtype it wants"),
    **dict.fromkeys(("if", "while", "group"), "what is inside has rows of its own"),
})  # fmt: skip


def narrow_dtype(precision: str) -> DType:
    """The dtype that ``precision`` names; UserError for another name."""
    if precision not in PRECISIONS:
        fix = nearest(str(precision), PRECISIONS, f"choose {', '.join(PRECISIONS)}")
        raise UserError(f"no precision is called {precision!r}", "precision", fix)
    return PRECISIONS[precision]
