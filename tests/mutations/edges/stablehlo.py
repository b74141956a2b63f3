"""StableHLO programs for branches that what JAX lowers does not reach."""

from __future__ import annotations

import re

_RESULT = re.compile(r"^    (%r\w+)(?::(\d+))? =.*?(?=^    %|\Z)", re.M | re.S)


def _program(arguments: str, body: str, functions: str = "") -> str:
    """A module whose results are the values named ``%r..``, each of the type that ends its op.

    ``arguments``: name and type of each; ``BY(op, dtype)`` in the body is a region of that one op.
    """
    pairs = (each.split() for each in arguments.split(","))
    given = ", ".join(f"%{name}: tensor<{kind}>" for name, kind in pairs)
    body = re.sub(r"BY\((\w+), (\w+)\)", lambda m: _body(m.group(1), m.group(2)), body)
    names, kinds = [], []
    for found in _RESULT.finditer(body):
        name, count = found.group(1), found.group(2)
        tail = found.group().strip()
        kind = re.split(r"-> | : ", tail)[-1].strip("() \n")
        names += [f"{name}#{i}" for i in range(int(count))] if count else [name]
        kinds += kind.split(", ")[-int(count or 1) :]
    listed = ", ".join(kinds)
    return (
        f"module {{\n  func.func public @main({given}) -> ({listed}) {{\n{body.rstrip()}\n"
        f"    return {', '.join(names)} : {listed}\n  }}\n{functions}}}\n"
    )


def _body(word: str, kind: str) -> str:
    """A region that combines two scalars by one op."""
    of = f"tensor<{kind}>"
    return (
        f"{{\n    ^bb0(%lhs: {of}, %rhs: {of}):\n"
        f"      %made = stablehlo.{word} %lhs, %rhs : {of}\n"
        f"      stablehlo.return %made : {of}\n    }}"
    )


#: Windows that are no pools: with dilated, cut and unequally padded axes, beside running folds.
_WINDOWS = """
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %three = stablehlo.constant dense<3.0> : tensor<f32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %high = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %none = stablehlo.constant dense<0> : tensor<i32>
    %unit = stablehlo.constant dense<1> : tensor<i32>
    %least = stablehlo.constant dense<-2147483648> : tensor<i32>
    %most = stablehlo.constant dense<2147483647> : tensor<i32>
    %no = stablehlo.constant dense<false> : tensor<i1>
    %i = stablehlo.constant dense<[3, -7, 5, 2]> : tensor<4xi32>
    %m = stablehlo.constant dense<[[2, -3, 5], [7, -1, 4]]> : tensor<2x3xi32>
    %k = stablehlo.round_nearest_even %x : tensor<3x7x5xf32>
    %l = stablehlo.round_nearest_even %y : tensor<3x7x5xf32>
    %p = stablehlo.compare GT, %k, %l : (tensor<3x7x5xf32>, tensor<3x7x5xf32>) -> tensor<3x7x5xi1>
    %r0 = "stablehlo.reduce_window"(%x, %low) (BY(maximum, f32)) {
        window_dimensions = array<i64: 1, 3, 2>, window_strides = array<i64: 1, 2, 1>,
        window_dilations = array<i64: 1, 2, 3>, padding = dense<[[0, 0], [2, 1], [2, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x3x4xf32>
    %r1 = "stablehlo.reduce_window"(%x, %zero) (BY(add, f32)) {
        window_dimensions = array<i64: 2, 1, 3>, window_strides = array<i64: 1, 1, 2>,
        window_dilations = array<i64: 2, 1, 1>, padding = dense<[[1, 0], [0, 0], [0, 2]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<2x7x3xf32>
    %r2 = "stablehlo.reduce_window"(%v, %zero) (BY(add, f32)) {
        window_dimensions = array<i64: 2, 2, 3, 2>, window_strides = array<i64: 1, 1, 1, 2>}
        : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
    %r3 = "stablehlo.reduce_window"(%x, %low) (BY(maximum, f32)) {
        window_dimensions = array<i64: 1, 2, 2>, padding = dense<[[0, 0], [-1, 2], [0, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x7x4xf32>
    %r4 = "stablehlo.reduce_window"(%x, %zero) (BY(add, f32)) {
        window_dimensions = array<i64: 1, 3, 1>, window_strides = array<i64: 1, 2, 1>,
        base_dilations = array<i64: 1, 2, 1>, padding = dense<[[0, 0], [1, 0], [0, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x6x5xf32>
    %r5 = "stablehlo.reduce_window"(%x, %high) (BY(minimum, f32)) {
        window_dimensions = array<i64: 2, 1, 3>, window_dilations = array<i64: 1, 1, 2>,
        window_strides = array<i64: 2, 3, 1>, padding = dense<[[1, 0], [0, 0], [2, 1]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
    %r6 = "stablehlo.reduce_window"(%x, %three) (BY(add, f32)) {
        window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 2, 3, 1>}
        : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<2x2x4xf32>
    %r7:2 = "stablehlo.reduce_window"(%x, %y, %low, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
      %e = stablehlo.compare GE, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %f = stablehlo.select %e, %a, %c : tensor<i1>, tensor<f32>
      %g = stablehlo.select %e, %b, %d : tensor<i1>, tensor<f32>
      stablehlo.return %f, %g : tensor<f32>, tensor<f32>
    }) {window_dimensions = array<i64: 2, 1, 3>, window_strides = array<i64: 1, 2, 2>,
        window_dilations = array<i64: 1, 1, 2>, base_dilations = array<i64: 2, 1, 1>,
        padding = dense<[[1, 0], [0, 0], [0, 3]]> : tensor<3x2xi64>}
        : (tensor<3x7x5xf32>, tensor<3x7x5xf32>, tensor<f32>, tensor<f32>)
        -> (tensor<5x4x2xf32>, tensor<5x4x2xf32>)
    %r8 = "stablehlo.reduce_window"(%p, %no) (BY(or, i1)) {
        window_dimensions = array<i64: 1, 7, 1>, padding = dense<[[0, 0], [6, 0], [0, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xi1>, tensor<i1>) -> tensor<3x7x5xi1>
    %r9 = "stablehlo.reduce_window"(%p, %no) (BY(maximum, i1)) {
        window_dimensions = array<i64: 1, 1, 5>, padding = dense<[[0, 0], [0, 0], [4, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xi1>, tensor<i1>) -> tensor<3x7x5xi1>
    %r10 = "stablehlo.reduce_window"(%x, %zero) (BY(add, f32)) {
        window_dimensions = array<i64: 1, 7, 1>, padding = dense<[[0, 0], [0, 6], [0, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x7x5xf32>
    %r11 = "stablehlo.reduce_window"(%x, %low) (BY(maximum, f32)) {
        window_dimensions = array<i64: 3, 1, 1>, padding = dense<[[1, 1], [0, 0], [0, 0]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x7x5xf32>
    %r12 = "stablehlo.reduce_window"(%m, %unit) (BY(multiply, i32)) {
        window_dimensions = array<i64: 2, 1>, padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>}
        : (tensor<2x3xi32>, tensor<i32>) -> tensor<2x3xi32>
    %r13 = "stablehlo.reduce_window"(%m, %least) (BY(maximum, i32)) {
        window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 2, 1>,
        padding = dense<[[0, 0], [1, -1]]> : tensor<2x2xi64>}
        : (tensor<2x3xi32>, tensor<i32>) -> tensor<1x2xi32>
    %r14 = "stablehlo.reduce_window"(%m, %most) (BY(minimum, i32)) {
        window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 1, 2>,
        base_dilations = array<i64: 3, 1>, padding = dense<[[1, 0], [0, 2]]> : tensor<2x2xi64>}
        : (tensor<2x3xi32>, tensor<i32>) -> tensor<4x2xi32>
    %r15 = "stablehlo.reduce_window"(%x, %low) (BY(maximum, f32)) {
        window_dimensions = array<i64: 1, 1, 1>} : (tensor<3x7x5xf32>, tensor<f32>)
        -> tensor<3x7x5xf32>
    %r17 = "stablehlo.reduce_window"(%i, %none) (BY(or, i32)) {
        window_dimensions = array<i64: 4>, padding = dense<[[3, 0]]> : tensor<1x2xi64>}
        : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
    %r18 = "stablehlo.reduce_window"(%x, %low) (BY(maximum, f32)) {
        window_dimensions = array<i64: 1, 1, 2>, padding = dense<[[0, 0], [0, 0], [1, -1]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x7x4xf32>
    %r19 = "stablehlo.reduce_window"(%x, %zero) (BY(add, f32)) {
        window_dimensions = array<i64: 1, 1, 1>, padding = dense<[[0, 0], [2, 0], [0, 1]]>
        : tensor<3x2xi64>} : (tensor<3x7x5xf32>, tensor<f32>) -> tensor<3x9x6xf32>
    %r16 = "stablehlo.reduce_window"(%m, %none) (BY(xor, i32)) {
        window_dimensions = array<i64: 2, 2>} : (tensor<2x3xi32>, tensor<i32>) -> tensor<1x2xi32>
""" + "".join(
    f"""    %r{20 + place} = "stablehlo.reduce_window"(%i, %none) (BY(add, i32)) {{
        window_dimensions = array<i64: 4>, padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>}}
        : (tensor<4xi32>, tensor<i32>) -> tensor<{low + high + 1}xi32>
"""
    for place, (low, high) in enumerate(
        (
            pair
            for far, near in ((3, 0), (3, 1), (2, 0), (4, 0), (5, 0), (2, 1))
            for pair in ((far, near), (near, far))
        )
    )
)

#: Gradients of pools: unequal padding, taps outside of it all, equal elements, another start.
_CHOICES = """
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %half = stablehlo.constant dense<0.5> : tensor<f32>
    %f = stablehlo.round_nearest_even %x : tensor<3x7x5xf32>
    %s = stablehlo.slice %y [0:2, 0:4, 0:3] : (tensor<3x7x5xf32>) -> tensor<2x4x3xf32>
    %u = stablehlo.slice %y [0:3, 0:3, 0:2] : (tensor<3x7x5xf32>) -> tensor<3x3x2xf32>
    %w = stablehlo.slice %y [0:2, 0:3, 0:4] : (tensor<3x7x5xf32>) -> tensor<2x3x4xf32>
    %r0 = "stablehlo.select_and_scatter"(%f, %s, %half) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, BODY) {window_dimensions = array<i64: 2, 3, 2>, window_strides = array<i64: 1, 2, 2>,
        padding = dense<[[0, 0], [1, 1], [0, 1]]> : tensor<3x2xi64>}
        : (tensor<3x7x5xf32>, tensor<2x4x3xf32>, tensor<f32>) -> tensor<3x7x5xf32>
    %r1 = "stablehlo.select_and_scatter"(%f, %u, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, BODY) {window_dimensions = array<i64: 1, 4, 3>, window_strides = array<i64: 1, 3, 4>,
        padding = dense<[[0, 0], [2, 1], [0, 2]]> : tensor<3x2xi64>}
        : (tensor<3x7x5xf32>, tensor<3x3x2xf32>, tensor<f32>) -> tensor<3x7x5xf32>
    %r2 = "stablehlo.select_and_scatter"(%x, %w, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, BODY) {window_dimensions = array<i64: 3, 3, 2>, window_strides = array<i64: 3, 3, 1>,
        padding = dense<[[2, 1], [1, 1], [0, 0]]> : tensor<3x2xi64>}
        : (tensor<3x7x5xf32>, tensor<2x3x4xf32>, tensor<f32>) -> tensor<3x7x5xf32>
    %t = stablehlo.slice %f [0:1, 0:2, 0:3] : (tensor<3x7x5xf32>) -> tensor<1x2x3xf32>
    %r3 = "stablehlo.select_and_scatter"(%t, %o, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, BODY) {window_dimensions = array<i64: 1, 4, 5>, padding = dense<[[0, 0], [2, 0], [0, 2]]>
        : tensor<3x2xi64>} : (tensor<1x2x3xf32>, tensor<1x1x1xf32>, tensor<f32>)
        -> tensor<1x2x3xf32>
    %e = stablehlo.slice %t [0:1, 0:0, 0:3] : (tensor<1x2x3xf32>) -> tensor<1x0x3xf32>
    %r4 = "stablehlo.select_and_scatter"(%t, %e, %half) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, BODY) {window_dimensions = array<i64: 1, 3, 1>, window_strides = array<i64: 1, 3, 1>}
        : (tensor<1x2x3xf32>, tensor<1x0x3xf32>, tensor<f32>) -> tensor<1x2x3xf32>
""".replace("BODY", "BY(add, f32)")

#: Gathers and scatters with axes in batches, in odd orders, with cut windows, beyond the border.
_INDEXING = """
    %spread = stablehlo.constant dense<4.0> : tensor<3x5x2x7xf32>
    %wide = stablehlo.multiply %n, %spread : tensor<3x5x2x7xf32>
    %i = stablehlo.convert %wide : (tensor<3x5x2x7xf32>) -> tensor<3x5x2x7xi32>
    %j = stablehlo.constant dense<[4, 0, 2, -3, 9, 1]> : tensor<6xi64>
    %k = stablehlo.constant dense<[1, 18446744073709551615, 0, 4, 9223372036854775808, 3]>
       : tensor<6xui64>
    %l = stablehlo.constant dense<[[0, 1, 2, 2, 0, 9], [3, -2, 1, 0, 2, 1]]> : tensor<2x6xi32>
    %f = stablehlo.round_nearest_even %y : tensor<3x5x4xf32>
    %g = stablehlo.round_nearest_even %z : tensor<3x5x4xf32>
    %p = stablehlo.compare GT, %f, %g : (tensor<3x5x4xf32>, tensor<3x5x4xf32>) -> tensor<3x5x4xi1>
    %c = stablehlo.constant dense<[2, 1, 3]> : tensor<3xi32>
    %e = stablehlo.constant dense<0.5> : tensor<2x6x1xf32>
    %r0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 4],
        operand_batching_dims = [0, 2], start_indices_batching_dims = [3, 0],
        start_index_map = [3, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 2, 1, 4>}
        : (tensor<7x5x3x6xf32>, tensor<3x5x2x7xi32>) -> tensor<3x2x5x7x4xf32>
    %r1 = "stablehlo.gather"(%y, %k) {dimension_numbers = #stablehlo.gather<offset_dims = [0],
        collapsed_slice_dims = [1, 2], start_index_map = [1], index_vector_dim = 1>,
        slice_sizes = array<i64: 2, 1, 1>} : (tensor<3x5x4xf32>, tensor<6xui64>) -> tensor<2x6xf32>
    %r2 = "stablehlo.gather"(%y, %j) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 2],
        collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
        slice_sizes = array<i64: 2, 1, 1>} : (tensor<3x5x4xf32>, tensor<6xi64>)
        -> tensor<2x6x1xf32>
    %r3 = "stablehlo.gather"(%y, %l) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 1],
        collapsed_slice_dims = [0], start_index_map = [0, 2], index_vector_dim = 0>,
        slice_sizes = array<i64: 1, 5, 2>} : (tensor<3x5x4xf32>, tensor<2x6xi32>)
        -> tensor<5x2x6xf32>
    %r4 = "stablehlo.gather"(%y, %none) {dimension_numbers = #stablehlo.gather<
        offset_dims = [0, 3], operand_batching_dims = [1], start_indices_batching_dims = [1],
        start_index_map = [], index_vector_dim = 2>, slice_sizes = array<i64: 2, 1, 3>}
        : (tensor<3x5x4xf32>, tensor<6x5x0xi32>) -> tensor<2x6x5x3xf32>
    %r5 = "stablehlo.dynamic_gather"(%y, %j, %c) {dimension_numbers = #stablehlo.gather<
        offset_dims = [1, 2], collapsed_slice_dims = [1], start_index_map = [1],
        index_vector_dim = 1>} : (tensor<3x5x4xf32>, tensor<6xi64>, tensor<3xi32>)
        -> tensor<6x2x3xf32>
    %r6 = "stablehlo.scatter"(%x, %i, %u) (BY(add, f32)) {scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [1, 4], input_batching_dims = [0, 2],
        scatter_indices_batching_dims = [3, 0], scatter_dims_to_operand_dims = [3, 1],
        index_vector_dim = 2>} : (tensor<7x5x3x6xf32>, tensor<3x5x2x7xi32>,
        tensor<3x2x5x7x4xf32>) -> tensor<7x5x3x6xf32>
    %r7 = "stablehlo.scatter"(%y, %k, %r1) (BY(multiply, f32)) {scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1, 2],
        scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}
        : (tensor<3x5x4xf32>, tensor<6xui64>, tensor<2x6xf32>) -> tensor<3x5x4xf32>
    %r8 = "stablehlo.scatter"(%y, %j, %r2) (BY(minimum, f32)) {scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [0, 2], inserted_window_dims = [1],
        scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}
        : (tensor<3x5x4xf32>, tensor<6xi64>, tensor<2x6x1xf32>) -> tensor<3x5x4xf32>
    %v = stablehlo.slice %u [0:3, 0:1, 0:5, 0:6, 0:1] : (tensor<3x2x5x7x4xf32>)
       -> tensor<3x1x5x6x1xf32>
    %w = stablehlo.reshape %v : (tensor<3x1x5x6x1xf32>) -> tensor<1x5x3x6xf32>
    %r9 = "stablehlo.scatter"(%y, %l, %w) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %b : tensor<f32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1, 2],
        scatter_dims_to_operand_dims = [0, 2], index_vector_dim = 0>}
        : (tensor<3x5x4xf32>, tensor<2x6xi32>, tensor<1x5x3x6xf32>) -> tensor<3x5x4xf32>
    %r10 = "stablehlo.scatter"(%y, %j, %r2) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %a : tensor<f32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2],
        inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}
        : (tensor<3x5x4xf32>, tensor<6xi64>, tensor<2x6x1xf32>) -> tensor<3x5x4xf32>
    %o = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
    %r20 = "stablehlo.scatter"(%h, %o, %r1) (BY(add, f32)) {scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0, 2],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<2x6x1xf32>, tensor<2xi32>, tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %d = stablehlo.round_nearest_even %h : tensor<2x6x1xf32>
    %q = stablehlo.compare LT, %d, %e : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xi1>
""" + "".join(
    f"""    %r{11 + place} = "stablehlo.scatter"(%p, %j, %q) (BY({word}, i1)) {{
        scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2],
        inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}}
        : (tensor<3x5x4xi1>, tensor<6xi64>, tensor<2x6x1xi1>) -> tensor<3x5x4xi1>
"""
    for place, word in enumerate(("or", "and", "add", "multiply", "maximum", "minimum"))
)

#: Bits of narrow and wide numbers: shifts, counts, splits, total orders, unsigned signs.
_BITS = """
    %ten = stablehlo.constant dense<37.0> : tensor<2x3xf32>
    %many = stablehlo.multiply %x, %ten : tensor<2x3xf32>
    %b = stablehlo.constant dense<[[-128, 93, 0], [-1, 64, 5]]> : tensor<2x3xi8>
    %n = stablehlo.constant dense<[[1, 7, 0], [9, 2, 8]]> : tensor<2x3xi8>
    %u = stablehlo.constant dense<[[200, 3, 0], [255, 129, 64]]> : tensor<2x3xui8>
    %t = stablehlo.constant dense<[[1, 8, 0], [3, 9, 2]]> : tensor<2x3xui8>
    %h = stablehlo.constant dense<[[40000, 3, 0], [65535, 257, 64]]> : tensor<2x3xui16>
    %i = stablehlo.convert %many : (tensor<2x3xf32>) -> tensor<2x3xi32>
    %l = stablehlo.constant dense<[[-9223372036854775808, 3, 0], [-1, 4294967296, 77]]>
       : tensor<2x3xi64>
    %w = stablehlo.constant dense<[[1, 64, 33], [0, 70, 2]]> : tensor<2x3xi64>
    %p = stablehlo.constant dense<[[true, false, true], [false, true, true]]> : tensor<2x3xi1>
    %q = stablehlo.constant dense<[[true, true, false], [false, false, true]]> : tensor<2x3xi1>
    %odd = stablehlo.constant dense<[[0xFFC00000, 0x80000000, 0x00000000], [0x7FC00000, 0x7F800000,
        0xBF800000]]> : tensor<2x3xf32>
    %even = stablehlo.constant dense<[[0xFF800000, 0x00000000, 0x80000000], [0x7F800000, 0x7FC00000,
        0xC0000000]]> : tensor<2x3xf32>
    %f = stablehlo.constant dense<[[0.5, -0.5, 2.5], [-1.5, 0.25, -3.75]]> : tensor<2x3xf32>
    %d = stablehlo.constant dense<[[1.0e300, -2.5, 1.0000001], [-1.5e-40, 0.25, 77.125]]>
       : tensor<2x3xf64>
    %fine = stablehlo.convert %x : (tensor<2x3xf32>) -> tensor<2x3xbf16>
    %half = stablehlo.convert %x : (tensor<2x3xf32>) -> tensor<2x3xf16>
    %least = stablehlo.constant dense<-2.0> : tensor<f32>
    %bound = stablehlo.constant dense<1.0> : tensor<f32>
    %yes = stablehlo.constant dense<false> : tensor<i1>
    %r0 = stablehlo.negate %u : tensor<2x3xui8>
    %r1 = stablehlo.sign %b : tensor<2x3xi8>
    %r2 = stablehlo.not %b : tensor<2x3xi8>
    %r3 = stablehlo.not %p : tensor<2x3xi1>
    %r4 = stablehlo.shift_right_logical %b, %n : tensor<2x3xi8>
    %r5 = stablehlo.shift_right_logical %l, %w : tensor<2x3xi64>
    %r6 = stablehlo.shift_right_arithmetic %u, %t : tensor<2x3xui8>
    %r7 = stablehlo.shift_right_arithmetic %b, %n : tensor<2x3xi8>
    %r8 = stablehlo.compare LT, %odd, %even, TOTALORDER
        : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %r9 = stablehlo.compare GE, %d, %d, TOTALORDER
        : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xi1>
    %r10 = stablehlo.compare LE, %odd, %even, FLOAT
        : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %r11 = stablehlo.bitcast_convert %d : (tensor<2x3xf64>) -> tensor<2x3x2xi32>
    %r12 = stablehlo.bitcast_convert %x : (tensor<2x3xf32>) -> tensor<2x3x4xui8>
    %r13 = stablehlo.bitcast_convert %r11 : (tensor<2x3x2xi32>) -> tensor<2x3xf64>
    %r14 = stablehlo.bitcast_convert %r12 : (tensor<2x3x4xui8>) -> tensor<2x3xi32>
    %r15 = stablehlo.bitcast_convert %fine : (tensor<2x3xbf16>) -> tensor<2x3xui16>
    %r16 = stablehlo.reduce_precision %x, format = e8m3 : tensor<2x3xf32>
    %r17 = stablehlo.reduce_precision %d, format = e4m52 : tensor<2x3xf64>
    %r18 = stablehlo.reduce_precision %half, format = e4m4 : tensor<2x3xf16>
    %r19 = stablehlo.reduce_precision %fine, format = e8m7 : tensor<2x3xbf16>
    %r20 = stablehlo.reduce_precision %odd, format = e5m6 : tensor<2x3xf32>
    %r21 = stablehlo.popcnt %u : tensor<2x3xui8>
    %r22 = stablehlo.popcnt %l : tensor<2x3xi64>
    %r23 = stablehlo.popcnt %i : tensor<2x3xi32>
    %r24 = stablehlo.count_leading_zeros %b : tensor<2x3xi8>
    %r25 = stablehlo.count_leading_zeros %h : tensor<2x3xui16>
    %r26 = stablehlo.count_leading_zeros %l : tensor<2x3xi64>
    %r27 = stablehlo.round_nearest_afz %f : tensor<2x3xf32>
    %r28 = stablehlo.round_nearest_afz %odd : tensor<2x3xf32>
    %r29 = stablehlo.clamp %least, %x, %bound
        : (tensor<f32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
    %r30 = stablehlo.select %yes, %x, %y : tensor<i1>, tensor<2x3xf32>
    %r31 = stablehlo.add %p, %q : tensor<2x3xi1>
    %r32 = stablehlo.multiply %p, %q : tensor<2x3xi1>
    %r33 = stablehlo.maximum %p, %q : tensor<2x3xi1>
    %r34 = stablehlo.minimum %p, %q : tensor<2x3xi1>
    %r35 = stablehlo.xor %p, %q : tensor<2x3xi1>
    %r36 = stablehlo.convert %many : (tensor<2x3xf32>) -> tensor<2x3xf8E5M2>
    %r37 = stablehlo.convert %d : (tensor<2x3xf64>) -> tensor<2x3xf8E4M3FN>
    %r38 = stablehlo.subtract %u, %t : tensor<2x3xui8>
    %r39 = stablehlo.minimum %u, %t : tensor<2x3xui8>
    %r40 = chlo.broadcast_shift_right_logical %b, %n
        : (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2x3xi8>
    %r41 = chlo.broadcast_shift_right_arithmetic %u, %t
        : (tensor<2x3xui8>, tensor<2x3xui8>) -> tensor<2x3xui8>
    %r42 = func.call @relu(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %r43 = func.call @relu_1(%y) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %r44 = func.call @relu_2(%i) : (tensor<2x3xi32>) -> tensor<2x3xi32>
    %r45 = "chlo.constant_like"(%x) {value = -2.5 : f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %r46 = stablehlo.reduce_precision %even, format = e8m23 : tensor<2x3xf32>
"""
_RELUS = """  func.func private @relu(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %z = stablehlo.constant dense<0.0> : tensor<2x3xf32>
    %m = stablehlo.maximum %x, %z : tensor<2x3xf32>
    return %m : tensor<2x3xf32>
  }
  func.func private @relu_1(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %z = stablehlo.constant dense<[[0.0, 0.5, -1.0], [0.25, 0.0, -0.5]]> : tensor<2x3xf32>
    %m = stablehlo.maximum %x, %z : tensor<2x3xf32>
    return %m : tensor<2x3xf32>
  }
  func.func private @relu_2(%x: tensor<2x3xi32>) -> tensor<2x3xi32> {
    %z = stablehlo.constant dense<0> : tensor<2x3xi32>
    %m = stablehlo.maximum %x, %z : tensor<2x3xi32>
    return %m : tensor<2x3xi32>
  }
"""

#: Products of unlike and narrow dtypes, and convolutions with every attribute in odd axes' orders.
_PRODUCTS = """
    %ten = stablehlo.constant dense<37.0> : tensor<2x3x4xf32>
    %two = stablehlo.constant dense<37.0> : tensor<4x2x5xf32>
    %big = stablehlo.multiply %x, %ten : tensor<2x3x4xf32>
    %far = stablehlo.multiply %y, %two : tensor<4x2x5xf32>
    %a = stablehlo.convert %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xbf16>
    %b = stablehlo.convert %y : (tensor<4x2x5xf32>) -> tensor<4x2x5xbf16>
    %c = stablehlo.convert %big : (tensor<2x3x4xf32>) -> tensor<2x3x4xi8>
    %d = stablehlo.convert %far : (tensor<4x2x5xf32>) -> tensor<4x2x5xi8>
    %e = stablehlo.convert %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf64>
    %f = stablehlo.convert %y : (tensor<4x2x5xf32>) -> tensor<4x2x5xf64>
    %r0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0]
        : (tensor<2x3x4xbf16>, tensor<4x2x5xbf16>) -> tensor<2x3x5xf32>
    %r1 = stablehlo.dot_general %c, %d, batching_dims = [0] x [1], contracting_dims = [2] x [0]
        : (tensor<2x3x4xi8>, tensor<4x2x5xi8>) -> tensor<2x3x5xi32>
    %r2 = stablehlo.dot_general %a, %b, contracting_dims = [2, 0] x [0, 1]
        : (tensor<2x3x4xbf16>, tensor<4x2x5xbf16>) -> tensor<3x5xbf16>
    %r3 = stablehlo.dot_general %e, %f, contracting_dims = [0] x [1]
        : (tensor<2x3x4xf64>, tensor<4x2x5xf64>) -> tensor<3x4x4x5xf64>
    %r4 = stablehlo.dot_general %x, %y, contracting_dims = [2] x [0]
        : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<2x3x2x5xf64>
    %r9 = stablehlo.dot_general %x, %y, batching_dims = [0] x [1], contracting_dims = [2] x [0]
        : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<2x3x5xbf16>
    %r5 = stablehlo.convolution(%u, %w) dim_numbers = [0, f, b, 1]x[i, 0, 1, o]->[f, 1, 0, b],
        window = {stride = [2, 1], pad = [[1, 0], [-1, 2]], lhs_dilate = [2, 1],
        rhs_dilate = [1, 2], reverse = [true, false]}
        {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
        : (tensor<5x4x3x6xf32>, tensor<2x3x2x6xf32>) -> tensor<6x5x4x3xf32>
    %r6 = stablehlo.convolution(%v, %w) dim_numbers = [b, 0, 1, f]x[i, 0, 1, o]->[b, f, 0, 1],
        window = {stride = [1, 2], pad = [[0, 1], [2, 0]], reverse = [false, true]}
        {batch_group_count = 2 : i64, feature_group_count = 1 : i64}
        : (tensor<6x5x4x2xf32>, tensor<2x3x2x6xf32>) -> tensor<3x6x4x3xf32>
    %r7 = stablehlo.convolution(%s, %g) dim_numbers = [f, b]x[i, o]->[b, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %h = stablehlo.convert %v : (tensor<6x5x4x2xf32>) -> tensor<6x5x4x2xbf16>
    %k = stablehlo.convert %w : (tensor<2x3x2x6xf32>) -> tensor<2x3x2x6xbf16>
    %r8 = stablehlo.convolution(%h, %k) dim_numbers = [b, 0, 1, f]x[i, 0, 1, o]->[0, b, 1, f],
        window = {rhs_dilate = [2, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<6x5x4x2xbf16>, tensor<2x3x2x6xbf16>) -> tensor<1x6x3x6xf32>
"""

#: Reductions with other starts, bodies and operands, near misses of the greatest's position.
_FOLDS = """
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %high = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %ten = stablehlo.constant dense<37.0> : tensor<3x5x2xf32>
    %many = stablehlo.multiply %x, %ten : tensor<3x5x2xf32>
    %i = stablehlo.convert %many : (tensor<3x5x2xf32>) -> tensor<3x5x2xi8>
    %u = stablehlo.convert %i : (tensor<3x5x2xi8>) -> tensor<3x5x2xui8>
    %level = stablehlo.constant dense<20> : tensor<3x5x2xi8>
    %p = stablehlo.compare GT, %i, %level : (tensor<3x5x2xi8>, tensor<3x5x2xi8>) -> tensor<3x5x2xi1>
    %ones = stablehlo.constant dense<-1> : tensor<i8>
    %most = stablehlo.constant dense<127> : tensor<i8>
    %least = stablehlo.constant dense<-128> : tensor<i8>
    %full = stablehlo.constant dense<255> : tensor<ui8>
    %none = stablehlo.constant dense<0> : tensor<ui8>
    %beside = stablehlo.constant dense<-2> : tensor<i8>
    %nearly = stablehlo.constant dense<254> : tensor<ui8>
    %nought = stablehlo.constant dense<0> : tensor<i8>
    %yes = stablehlo.constant dense<true> : tensor<i1>
    %no = stablehlo.constant dense<false> : tensor<i1>
    %r0 = stablehlo.reduce(%i init: %ones) applies stablehlo.and across dimensions = [1]
        : (tensor<3x5x2xi8>, tensor<i8>) -> tensor<3x2xi8>
    %r1 = stablehlo.reduce(%u init: %full) applies stablehlo.and across dimensions = [0, 2]
        : (tensor<3x5x2xui8>, tensor<ui8>) -> tensor<5xui8>
    %r2 = stablehlo.reduce(%i init: %most) applies stablehlo.minimum across dimensions = [2, 1]
        : (tensor<3x5x2xi8>, tensor<i8>) -> tensor<3xi8>
    %r3 = stablehlo.reduce(%i init: %least) applies stablehlo.maximum across dimensions = [0]
        : (tensor<3x5x2xi8>, tensor<i8>) -> tensor<5x2xi8>
    %r4 = stablehlo.reduce(%u init: %none) applies stablehlo.maximum across dimensions = [0]
        : (tensor<3x5x2xui8>, tensor<ui8>) -> tensor<5x2xui8>
    %r5 = stablehlo.reduce(%u init: %full) applies stablehlo.minimum across dimensions = [1]
        : (tensor<3x5x2xui8>, tensor<ui8>) -> tensor<3x2xui8>
    %r6 = stablehlo.reduce(%u init: %none) applies stablehlo.or across dimensions = [1]
        : (tensor<3x5x2xui8>, tensor<ui8>) -> tensor<3x2xui8>
""" + "".join(f"""    %r{7 + 2 * place} = stablehlo.reduce(%p init: %{a}) applies stablehlo.{word}
        across dimensions = [1] : (tensor<3x5x2xi1>, tensor<i1>) -> tensor<3x2xi1>
    %r{8 + 2 * place} = stablehlo.reduce(%p init: %{b}) applies stablehlo.{word}
        across dimensions = [0, 1] : (tensor<3x5x2xi1>, tensor<i1>) -> tensor<2xi1>
""" for place, (word, a, b) in enumerate((
    ("and", "yes", "no"), ("or", "no", "yes"), ("xor", "no", "yes"), ("maximum", "no", "yes"),
    ("minimum", "yes", "no"), ("add", "no", "yes"), ("multiply", "yes", "no"),
))) + """    %r30 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = []
        : (tensor<3x5x2xf32>, tensor<f32>) -> tensor<3x5x2xf32>
    %r33 = stablehlo.reduce(%i init: %beside) applies stablehlo.and across dimensions = [1]
        : (tensor<3x5x2xi8>, tensor<i8>) -> tensor<3x2xi8>
    %r34 = stablehlo.reduce(%u init: %nearly) applies stablehlo.and across dimensions = [1]
        : (tensor<3x5x2xui8>, tensor<ui8>) -> tensor<3x2xui8>
    %r35 = stablehlo.reduce(%u init: %nearly) applies stablehlo.or across dimensions = [1]
        : (tensor<3x5x2xui8>, tensor<ui8>) -> tensor<3x2xui8>
    %r36 = stablehlo.reduce(%i init: %nought) applies stablehlo.maximum across dimensions = [1]
        : (tensor<3x5x2xi8>, tensor<i8>) -> tensor<3x2xi8>
    %r31 = stablehlo.reduce(%empty init: %one) applies stablehlo.maximum across dimensions = [1]
        : (tensor<3x0xf32>, tensor<f32>) -> tensor<3xf32>
    %r32:2 = "stablehlo.reduce"(%x, %y, %zero, %one) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
      %e = stablehlo.add %a, %c : tensor<f32>
      %f = stablehlo.multiply %b, %d : tensor<f32>
      stablehlo.return %e, %f : tensor<f32>, tensor<f32>
    }) {dimensions = array<i64: 1, 2>} : (tensor<3x5x2xf32>, tensor<3x5x2xf32>, tensor<f32>,
        tensor<f32>) -> (tensor<3xf32>, tensor<3xf32>)
    %count = stablehlo.iota dim = 1 : tensor<3x5x2xi32>
    %other = stablehlo.iota dim = 0 : tensor<3x5x2xi32>
    %first = stablehlo.constant dense<0> : tensor<i32>
    %last = stablehlo.constant dense<-3> : tensor<i32>
    %half = stablehlo.constant dense<1.5> : tensor<f32>
""" + "".join(f"""    %r{40 + place}:2 = "stablehlo.reduce"(%{x}, %{n}, %{s}, %{f}) ({{
    ^bb0(%a: tensor<{of}>, %b: tensor<i32>, %c: tensor<{of}>, %d: tensor<i32>):
      %e = stablehlo.compare {word}, %a, %c : (tensor<{of}>, tensor<{of}>) -> tensor<i1>
NAN      %i2 = stablehlo.compare EQ, %a, %c : (tensor<{of}>, tensor<{of}>) -> tensor<i1>
      %j = stablehlo.compare LT, %b, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %k = stablehlo.and %i2, %j : tensor<i1>
      %l = stablehlo.or %{g}, %k : tensor<i1>
      %m = stablehlo.select %{g}, %a, %c : tensor<i1>, tensor<{of}>
      %n = stablehlo.select %l, %b, %d : tensor<i1>, tensor<i32>
      stablehlo.return %m, %n : tensor<{of}>, tensor<i32>
    }}) {{dimensions = array<i64: 1>}} : (tensor<3x5x2x{of}>, tensor<3x5x2xi32>, tensor<{of}>,
        tensor<i32>) -> (tensor<3x2x{of}>, tensor<3x2xi32>)
""".replace("NAN", f"""      %f = stablehlo.compare NE, %a, %a
        : (tensor<{of}>, tensor<{of}>) -> tensor<i1>
      %g = stablehlo.or %e, %f : tensor<i1>
""" if g == "g" else "").replace("\n\n", "\n") for place, (word, x, n, s, f, of, g) in enumerate((
    ("GT", "x", "count", "low", "first", "f32", "g"),
    ("LT", "x", "count", "high", "first", "f32", "g"),
    ("GT", "x", "count", "half", "first", "f32", "g"),
    ("LT", "x", "count", "high", "last", "f32", "g"),
    ("GT", "x", "other", "low", "first", "f32", "g"),
    ("LT", "i", "count", "most", "first", "i8", "e"),
    ("GT", "p", "count", "no", "first", "i1", "e"),
)))  # fmt: skip

#: Sorts by several keys and in the total order, triangular systems of every form, cases.
_ORDERS = (
    """
    %f = stablehlo.round_nearest_even %x : tensor<3x7x2xf32>
    %g = stablehlo.round_nearest_even %y : tensor<3x7x2xf32>
    %odd = stablehlo.constant dense<[[0xFFC00000, 0x80000000, 0x00000000, 0x7FC00000, 0x7F800000,
        0xBF800000, 0x80000000]]> : tensor<1x7xf32>
    %r0:3 = "stablehlo.sort"(%f, %g, %x) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>, %p: tensor<f32>,
         %q: tensor<f32>):
      %1 = stablehlo.compare GT, %c, %d : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.compare EQ, %c, %d : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.and %2, %3 : tensor<i1>
      %5 = stablehlo.or %1, %4 : tensor<i1>
      stablehlo.return %5 : tensor<i1>
    }) : (tensor<3x7x2xf32>, tensor<3x7x2xf32>, tensor<3x7x2xf32>)
        -> (tensor<3x7x2xf32>, tensor<3x7x2xf32>, tensor<3x7x2xf32>)
    %r1 = "stablehlo.sort"(%odd) <{dimension = -1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }) : (tensor<1x7xf32>) -> tensor<1x7xf32>
    %r2:2 = "stablehlo.sort"(%y, %f) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
      %1 = stablehlo.compare LT, %d, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }) : (tensor<3x7x2xf32>, tensor<3x7x2xf32>) -> (tensor<3x7x2xf32>, tensor<3x7x2xf32>)
    %i = stablehlo.convert %g : (tensor<3x7x2xf32>) -> tensor<3x7x2xi32>
    %r3:2 = "stablehlo.sort"(%i, %x) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<f32>):
      %1 = stablehlo.compare GT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }) : (tensor<3x7x2xi32>, tensor<3x7x2xf32>) -> (tensor<3x7x2xi32>, tensor<3x7x2xf32>)
    %r4:2 = chlo.top_k(%odd, k = 3) : tensor<1x7xf32> -> (tensor<1x3xf32>, tensor<1x3xi32>)
    %eye = stablehlo.constant dense<[[2.0, 0.0, 0.0], [0.0, -3.0, 0.0], [0.0, 0.0, 1.5]]>
        : tensor<3x3xf32>
    %m = stablehlo.add %s, %eye : tensor<3x3xf32>
"""
    + "".join(
        f"""    %r{10 + place} = stablehlo.custom_call @lapack_strsm_ffi(%m, %{name})
        {{mhlo.backend_config = {{diag = {ord(diag)} : ui8, side = {ord(side)} : ui8,
        trans_x = {ord(trans)} : ui8, uplo = {ord(uplo)} : ui8}},
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[0, 1]> : tensor<2xindex>],
        result_layouts = [dense<[0, 1]> : tensor<2xindex>], output_operand_aliases =
        [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1,
        operand_tuple_indices = []>], api_version = 4 : i32}}
        : (tensor<3x3xf32>, tensor<{kind}>) -> tensor<{kind}>
"""
        for place, (side, uplo, diag, trans, name, kind) in enumerate(
            (
                ("L", "U", "U", "T", "v", "3x2xf32"),
                ("R", "L", "N", "T", "w", "2x3xf32"),
                ("L", "L", "U", "N", "v", "3x2xf32"),
                ("R", "U", "U", "N", "w", "2x3xf32"),
            )
        )
    )
    + """    %one = stablehlo.constant dense<1> : tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %nine = stablehlo.constant dense<9> : tensor<i32>
    %yes = stablehlo.constant dense<true> : tensor<i1>
    %in = stablehlo.add %j, %two : tensor<i32>
    %out = stablehlo.subtract %j, %nine : tensor<i32>
"""
    + "".join(
        f"""    %r{20 + place} = "stablehlo.case"(%{at}) ({{
      %a = stablehlo.sine %v : tensor<3x2xf32>
      stablehlo.return %a : tensor<3x2xf32>
    }}, {{
      %a = stablehlo.add %v, %z : tensor<3x2xf32>
      stablehlo.return %a : tensor<3x2xf32>
    }}, {{
      %a = stablehlo.subtract %z, %v : tensor<3x2xf32>
      stablehlo.return %a : tensor<3x2xf32>
    }}, {{
      stablehlo.return %z : tensor<3x2xf32>
    }}) : (tensor<i32>) -> tensor<3x2xf32>
"""
        for place, at in enumerate(("one", "nine", "in", "out"))
    )
    + """
    %r30 = "stablehlo.if"(%yes) ({
      stablehlo.return %v : tensor<3x2xf32>
    }, {
      stablehlo.return %z : tensor<3x2xf32>
    }) : (tensor<i1>) -> tensor<3x2xf32>
    %r31 = "stablehlo.case"(%j) ({
      %a = stablehlo.cosine %v : tensor<3x2xf32>
      stablehlo.return %a : tensor<3x2xf32>
    }) : (tensor<i32>) -> tensor<3x2xf32>
    %r32 = stablehlo.custom_call @Sharding(%v) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    %r33:2 = "stablehlo.case"(%in) ({
      %a = stablehlo.cosine %v : tensor<3x2xf32>
      stablehlo.return %a, %z : tensor<3x2xf32>, tensor<3x2xf32>
    }, {
      stablehlo.return %z, %v : tensor<3x2xf32>, tensor<3x2xf32>
    }, {
      %a = stablehlo.sine %z : tensor<3x2xf32>
      stablehlo.return %v, %a : tensor<3x2xf32>, tensor<3x2xf32>
    }) : (tensor<i32>) -> (tensor<3x2xf32>, tensor<3x2xf32>)
"""
)

#: Pads that cut and spread, unordered broadcasts, clamped starts, zero-sized and reversed axes.
_SHAPES = """
    %half = stablehlo.constant dense<0.5> : tensor<f32>
    %minus = stablehlo.constant dense<-7> : tensor<i32>
    %far = stablehlo.constant dense<40> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %r0 = stablehlo.pad %x, %half, low = [1, -1, 0], high = [-1, 2, 3], interior = [1, 0, 2]
        : (tensor<2x3x5xf32>, tensor<f32>) -> tensor<3x4x16xf32>
    %r1 = stablehlo.broadcast_in_dim %x, dims = [3, 0, 2]
        : (tensor<2x3x5xf32>) -> tensor<3x4x5x2xf32>
    %r2 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x3x5xf32>) -> tensor<5x2x3xf32>
    %r3 = stablehlo.slice %x [0:2, 1:3, 1:5:2] : (tensor<2x3x5xf32>) -> tensor<2x2x2xf32>
    %r4 = stablehlo.reverse %x, dims = [2, 0] : tensor<2x3x5xf32>
    %r5 = stablehlo.dynamic_slice %x, %minus, %one, %far, sizes = [1, 2, 3]
        : (tensor<2x3x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x3xf32>
    %r6 = stablehlo.dynamic_update_slice %x, %y, %far, %minus, %one
        : (tensor<2x3x5xf32>, tensor<1x2x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
        -> tensor<2x3x5xf32>
    %r7 = stablehlo.iota dim = 1 : tensor<2x3x5xui8>
    %r8 = stablehlo.concatenate %x, %z, dim = 1
        : (tensor<2x3x5xf32>, tensor<2x1x5xf32>) -> tensor<2x4x5xf32>
    %r9 = stablehlo.broadcast %y, sizes = [4, 6] : (tensor<1x2x3xf32>) -> tensor<4x6x1x2x3xf32>
    %r10 = stablehlo.get_dimension_size %x, dim = 2 : (tensor<2x3x5xf32>) -> tensor<i32>
    %r11 = stablehlo.set_dimension_size %x, %three, dim = 1
        : (tensor<2x3x5xf32>, tensor<i32>) -> tensor<2x3x5xf32>
    %r12 = stablehlo.reverse %x, dims = [] : tensor<2x3x5xf32>
    %r13 = stablehlo.slice %x [0:2, 1:1, 1:5] : (tensor<2x3x5xf32>) -> tensor<2x0x4xf32>
"""

#: Name -> text of the module.
PROGRAMS: dict[str, str] = {
    "stablehlo_windows": _program(
        "x 3x7x5xf32, y 3x7x5xf32, v 2x3x4x5xf32",
        _WINDOWS,
    ),
    "stablehlo_choices": _program(
        "x 3x7x5xf32, y 3x7x5xf32, o 1x1x1xf32",
        _CHOICES,
    ),
    "stablehlo_indexing": _program(
        "x 7x5x3x6xf32, n 3x5x2x7xf32, y 3x5x4xf32, z 3x5x4xf32, u 3x2x5x7x4xf32, h "
        "2x6x1xf32, none 6x5x0xi32",
        _INDEXING,
    ),
    "stablehlo_bits": _program(
        "x 2x3xf32, y 2x3xf32",
        _BITS,
        _RELUS,
    ),
    "stablehlo_products": _program(
        "x 2x3x4xf32, y 4x2x5xf32, u 5x4x3x6xf32, v 6x5x4x2xf32, w 2x3x2x6xf32, s 4x3xf32, g "
        "4x5xf32",
        _PRODUCTS,
    ),
    "stablehlo_folds": _program(
        "x 3x5x2xf32, y 3x5x2xf32, empty 3x0xf32",
        _FOLDS,
    ),
    "stablehlo_orders": _program(
        "x 3x7x2xf32, y 3x7x2xf32, s 3x3xf32, v 3x2xf32, w 2x3xf32, z 3x2xf32, j i32",
        _ORDERS,
    ),
    "stablehlo_shapes": _program(
        "x 2x3x5xf32, y 1x2x3xf32, z 2x1x5xf32",
        _SHAPES,
    ),
}
