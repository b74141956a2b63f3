"""StableHLO programs with the ops that JAX does not lower to, and norms of convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.mutations.edges import stablehlo, stablehlo_loops

_RARE = """module {
  func.func public @main(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>, %v: tensor<4xf32>,
                         %i: tensor<3x4xi32>, %j: tensor<i32>, %p: tensor<i1>) -> (RESULTS) {
    %0 = chlo.broadcast_add %x, %v : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %1 = chlo.broadcast_subtract %v, %x : (tensor<4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %2 = chlo.broadcast_multiply %0, %v : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %3 = chlo.broadcast_divide %1, %y : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %4 = chlo.broadcast_maximum %x, %v : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %5 = chlo.broadcast_minimum %v, %y : (tensor<4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %6 = chlo.broadcast_atan2 %x, %v : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %7 = chlo.broadcast_remainder %x, %v : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %8 = chlo.broadcast_compare %x, %v {comparison_direction = #chlo<comparison_direction LT>}
       : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xi1>
    %9 = chlo.broadcast_and %i, %j : (tensor<3x4xi32>, tensor<i32>) -> tensor<3x4xi32>
    %10 = chlo.broadcast_or %j, %i : (tensor<i32>, tensor<3x4xi32>) -> tensor<3x4xi32>
    %11 = chlo.broadcast_xor %i, %j : (tensor<3x4xi32>, tensor<i32>) -> tensor<3x4xi32>
    %12 = chlo.broadcast_shift_left %i, %j : (tensor<3x4xi32>, tensor<i32>) -> tensor<3x4xi32>
    %13 = chlo.is_inf %3 : tensor<3x4xf32> -> tensor<3x4xi1>
    %14 = chlo.is_pos_inf %3 : tensor<3x4xf32> -> tensor<3x4xi1>
    %15 = chlo.is_neg_inf %3 : tensor<3x4xf32> -> tensor<3x4xi1>
    %16 = chlo.square %x : tensor<3x4xf32> -> tensor<3x4xf32>
    %17 = stablehlo.broadcast %v, sizes = [2] : (tensor<4xf32>) -> tensor<2x4xf32>
    %18 = stablehlo.count_leading_zeros %i : tensor<3x4xi32>
    %t = stablehlo.transpose %y, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
    %19 = stablehlo.dot %x, %t : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
    %20 = stablehlo.logistic %x : tensor<3x4xf32>
    %21 = "stablehlo.map"(%x, %y) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.multiply %a, %b : tensor<f32>
      %d = stablehlo.subtract %c, %a : tensor<f32>
      stablehlo.return %d : tensor<f32>
    }) {dimensions = array<i64: 0, 1>} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %22 = "stablehlo.case"(%j) ({
      %a = stablehlo.sine %x : tensor<3x4xf32>
      stablehlo.return %a : tensor<3x4xf32>
    }, {
      %a = stablehlo.add %x, %y : tensor<3x4xf32>
      stablehlo.return %a : tensor<3x4xf32>
    }, {
      stablehlo.return %y : tensor<3x4xf32>
    }) : (tensor<i32>) -> tensor<3x4xf32>
    %23 = "stablehlo.if"(%p) ({
      %a = stablehlo.cosine %x : tensor<3x4xf32>
      stablehlo.return %a : tensor<3x4xf32>
    }, {
      %a = stablehlo.negate %y : tensor<3x4xf32>
      stablehlo.return %a : tensor<3x4xf32>
    }) : (tensor<i1>) -> tensor<3x4xf32>
    %24:2 = stablehlo.optimization_barrier %x, %y : tensor<3x4xf32>, tensor<3x4xf32>
    %n = stablehlo.constant dense<[6, 2]> : tensor<2xi32>
    %25 = stablehlo.dynamic_reshape %x, %n : (tensor<3x4xf32>, tensor<2xi32>) -> tensor<6x2xf32>
    %26 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<3x4xf32>) -> tensor<i32>
    %27 = stablehlo.composite "own.halved" %x {decomposition = @halved}
        : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %28 = chlo.broadcast_power %16, %v : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %big = stablehlo.constant dense<1.0e6> : tensor<3x4xf32>
    %beyond = stablehlo.multiply %x, %big : tensor<3x4xf32>
    %below = stablehlo.divide %x, %big : tensor<3x4xf32>
    %30 = stablehlo.reduce_precision %beyond, format = e5m10 : tensor<3x4xf32>
    %31 = stablehlo.reduce_precision %below, format = e5m10 : tensor<3x4xf32>
    %halfway = stablehlo.constant dense<[[1.00048828125, 1.00146484375, -1.00048828125,
        -1.00146484375], [2.0009765625, 2.0029296875, 0.0, -0.0], [1.5, 3.0, 1.00048840045928955,
        1.00146472454071045]]> : tensor<3x4xf32>
    %36 = stablehlo.reduce_precision %halfway, format = e5m10 : tensor<3x4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %two = stablehlo.constant dense<2.0> : tensor<3x4xf32>
    %above = stablehlo.add %16, %two : tensor<3x4xf32>
    %under = stablehlo.negate %above : tensor<3x4xf32>
    %32 = stablehlo.reduce(%under init: %zero) applies stablehlo.maximum across dimensions = [1]
        : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %33 = stablehlo.reduce(%above init: %one) applies stablehlo.minimum across dimensions = [0]
        : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
    %34 = stablehlo.reduce(%x init: %one) applies stablehlo.add across dimensions = [0]
        : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
    %35 = stablehlo.reduce(%x init: %zero) applies stablehlo.multiply across dimensions = [0]
        : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
    %most = stablehlo.constant dense<2147483647> : tensor<i32>
    %least = stablehlo.constant dense<-2147483648> : tensor<i32>
    %37 = stablehlo.reduce(%9 init: %most) applies stablehlo.maximum across dimensions = [0]
        : (tensor<3x4xi32>, tensor<i32>) -> tensor<4xi32>
    %38 = stablehlo.reduce(%9 init: %least) applies stablehlo.minimum across dimensions = [0]
        : (tensor<3x4xi32>, tensor<i32>) -> tensor<4xi32>
    %29 = func.call @halved(%y) : (tensor<3x4xf32>) -> tensor<3x4xf32>
    return VALUES
  }
  func.func private @halved(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
    %h = stablehlo.constant dense<0.5> : tensor<3x4xf32>
    %m = stablehlo.multiply %x, %h : tensor<3x4xf32>
    return %m : tensor<3x4xf32>
  }
}
"""
_KINDS = {
    **dict.fromkeys((*range(8), 16, *range(20, 24), 27, *range(28, 32), 36), "3x4xf32"),
    **dict.fromkeys((8, 13, 14, 15), "3x4xi1"),
    **dict.fromkeys((*range(9, 13), 18), "3x4xi32"),
    17: "2x4xf32",
    19: "3x3xf32",
    25: "6x2xf32",
    26: "i32",
    32: "3xf32",
    33: "4xf32",
    34: "4xf32",
    35: "4xf32",
    37: "4xi32",
    38: "4xi32",
}

#: A convolution to as many rows and columns as channels, and a norm of one of its axes.
_NORM = """    %{c} = stablehlo.convolution(%{x}, %{w}) dim_numbers = {dims}, window = {{}}
       {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
       : ({xt}, {wt}) -> tensor<2x4x4x4xf32>
    %{n} = "stablehlo.batch_norm_inference"(%{c}, %s, %o, %m, %u)
       {{epsilon = 1.0e-3 : f32, feature_index = {axis} : i64}}
       : (tensor<2x4x4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
       -> tensor<2x4x4x4xf32>
"""


def _norms() -> str:
    first = (
        "tensor<2x3x4x4xf32>",
        "tensor<4x3x1x1xf32>",
        "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
    )
    last = ("tensor<2x4x4x3xf32>", "tensor<1x1x3x4xf32>", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]")
    numbers = (
        "[0.5, -1.25, 2.0, 0.75]",
        "[0.1, 0.2, -0.3, 0.4]",
        "[0.7, -0.2, 0.3, 1.1]",
        ("[0.9, 0.4, 1.6, 0.6]"),
    )
    lines = [
        f"    %{name} = stablehlo.constant dense<{text}> : tensor<4xf32>"
        for name, text in zip("somu", numbers, strict=True)
    ]
    made = []
    for x, (xt, wt, dims), axes in (("x", first, (1, 2, 3)), ("y", last, (3, 1))):
        for axis in axes:
            at = f"{x}{axis}"  # weights of its own: no two convolutions are one
            lines += [
                f"    %i{at} = stablehlo.iota dim = 0 : tensor<12xf32>",
                f"    %k{at} = stablehlo.constant dense<{1 + len(made)}.5> : tensor<12xf32>",
                f"    %p{at} = stablehlo.multiply %i{at}, %k{at} : tensor<12xf32>",
                f"    %q{at} = stablehlo.cosine %p{at} : tensor<12xf32>",
                f"    %w{at} = stablehlo.reshape %q{at} : (tensor<12xf32>) -> {wt}",
            ]
            made.append(f"n{at}")
            lines.append(
                _NORM.format(
                    x=x, w=f"w{at}", xt=xt, wt=wt, dims=dims, axis=axis, c=f"c{at}", n=made[-1]
                ).rstrip("\n")
            )
    kinds = ", ".join(["tensor<2x4x4x4xf32>"] * len(made))
    return "\n".join(
        [
            "module {",
            f"  func.func public @main(%x: {first[0]}, %y: {last[0]}) -> ({kinds}) {{",
            *lines,
            f"    return {', '.join(f'%{name}' for name in made)} : {kinds}",
            "  }",
            "}",
            "",
        ]
    )


def models(names: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Name and text of each program (``names``: of these)."""
    numbers = sorted(_KINDS)
    kinds = ", ".join(f"tensor<{_KINDS[n]}>" for n in numbers)
    values = ", ".join(f"%{n}" for n in numbers)
    rare = _RARE.replace("RESULTS", kinds).replace("VALUES", f"{values} : {kinds}")
    for name, text in (
        ("stablehlo_rare", rare),
        ("stablehlo_norms", _norms()),
        *stablehlo.PROGRAMS.items(),
        *stablehlo_loops.PROGRAMS.items(),
    ):
        if not names or name in names:
            yield name, text
