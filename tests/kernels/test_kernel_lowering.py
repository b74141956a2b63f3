"""Every lowering against its op's reference, bit for bit: plain loops and schedules interpreted, and
the scheduled kernel compiled."""

# ruff: noqa: E501  (a table of cases)
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Block, FrontendNode, Origin, dtype
from core_compiler.kernel_ir.abi import work_items
from core_compiler.lowering.lower import lower_group
from core_compiler.numerics.reference.window import max_pool_indices
from core_compiler.scheduling.schedules.library import schedule
from tests.examples import examples
from tests.kernels.kernel_helpers import (
    assert_same_bits,
    compiled,
    few_rows,
    group,
    integers,
    interpreted,
    normal,
    reference,
)

WINDOW = {"strides": (2, 1), "low": (1, 0), "high": (1, 2), "dilations": (1, 2)}
SAME = {"strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1), "groups": 1}


def awkward(rows=5, columns=40):
    """Ties, NaNs and signed zeros in the places where maxima and sorts decide."""
    x = np.round(normal(rows, columns), 1)
    x[0, 3] = x[0, 9] = 9
    x[1, 5] = np.nan
    x[2], x[2, 7] = 0, -0.0
    x[3], x[3, 8] = -0.0, 0
    return x


def positive(size):
    x = normal(size, size)
    return x @ x.T + np.eye(size, dtype=np.float32)


def _reduce(kind, axes, **more):
    return lambda b, x: getattr(b, f"reduce_{kind}")(x, axes=axes, **more)


X3 = normal(5, 300, 37)
X4 = normal(2, 6, 9, 8)
PLACES = max_pool_indices(np.round(X4), (3, 2), (2, 1), ((1, 1), (0, 2)), (1, 2))[1]
#: From and to integers of fewer bits than a byte.
NARROW_CASTS = (
    ("i8", "i4"),
    ("i8", "ui4"),
    ("i64", "i2"),
    ("i32", "ui2"),
    ("i1", "i4"),
    ("i4", "f32"),
    ("i4", "bf16"),
    ("ui4", "f64"),
    ("ui2", "ui8"),
    ("i2", "i64"),
    ("i4", "i1"),
    ("i4", "ui2"),
)

#: name -> (what the group computes, operands)
CASES = {
    "add relu": (lambda b, x, y: b.relu(b.add(x, y)), [normal(7, 50), normal(7, 50)]),
    "gelu": (lambda b, x: b.gelu(x), [normal(3, 70)]),
    "gelu tanh": (lambda b, x: b.gelu(x, approximate="tanh"), [normal(3, 70)]),
    "no elements": (lambda b, x: b.exp(x), [np.zeros((0, 4), np.float32)]),
    "one element": (lambda b, x: b.exp(x), [np.array(0.5, np.float32)]),
    "bias and residual": (
        lambda b, x, c, y: b.add(b.add(x, b.broadcast(c, shape=(6, 50), dims=(1,))), y),
        [normal(6, 50), normal(50), normal(6, 50)],
    ),
    "bf16": (lambda b, x, y: b.mul(b.exp(x), y), [normal(50).astype(ml_dtypes.bfloat16)] * 2),
    "f16": (lambda b, x, y: b.div(x, y), [normal(50).astype(np.float16)] * 2),
    "remainder": (lambda b, x, y: b.rem(x, y), [normal(40) * 9, normal(40)]),
    "integer power": (lambda b, x, y: b.pow(x, y), [integers(-3, 4, 40), integers(-2, 9, 40)]),
    "shift": (
        lambda b, x, y: b.shr(x, y), [integers(-99, 99, 40, np.int32), integers(-2, 40, 40, np.int32)]
    ),
    "bits read as they are": (
        lambda b, x: b.neg(b.bitcast(x, dtype=dtype("i8"))), [integers(-99, 99, 40, np.int8)]
    ),
    "cast to i8 saturates": (lambda b, x: b.cast(x, dtype=dtype("i8")), [normal(50) * 200]),
    "cast to fp8": (lambda b, x: b.cast(x, dtype=dtype("f8E4M3FN")), [normal(50) * 400]),
    "products of fp8 overflow to NaN": (
        lambda b, x, y: b.matmul(x, y),
        [(normal(9, 9) * 200).astype(dtype("f8E4M3FN").numpy), normal(9, 40).astype(dtype("f8E4M3FN").numpy)],
    ),
    "convolutions of fp8 overflow to NaN": (
        lambda b, x, w: b.conv(x, w, **SAME),
        [(normal(1, 3, 6, 6) * 100).astype(dtype("f8E5M2").numpy), (normal(4, 3, 3, 3) * 300).astype(dtype("f8E5M2").numpy)],
    ),
    **{
        f"{source} to {target}": (
            lambda b, x, target=target: b.cast(x, dtype=dtype(target)),
            [integers(-9, 9, 50, np.int32).astype(dtype(source).numpy)],
        )
        for source, target in NARROW_CASTS
    },
    "floats to i4 saturate": (
        lambda b, x: b.cast(x, dtype=dtype("i4")), [np.append(normal(50) * 9, np.float32("nan"))]
    ),
    "bools of shifted joins": (
        lambda b, x, y: b.xor(*(
            b.slice(b.concat(y, x, y, axis=0), starts=(s, 0), limits=(s + 4, 90), strides=(1, 1))
            for s in (0, 1)
        )),
        [integers(0, 2, (3, 90), np.bool_), integers(0, 2, (1, 90), np.bool_)[:, ::-1]],
    ),
    "i4 select and pad": (
        lambda b, p, x, v: b.pad(
            b.select(p, x, b.reverse(x, axes=(0,))), v, low=(3,), high=(2,), interior=(0,)
        ),
        [integers(0, 2, 50, np.bool_), integers(-8, 8, 50, np.int8).astype(dtype("i4").numpy),
         np.array(-3, dtype("i4").numpy)],
    ),
    "iota": (lambda b, x: b.add(x, b.iota(shape=(4, 50), dtype=dtype("f32"), axis=1)), [normal(4, 50)]),
    "transpose": (lambda b, x: b.transpose(x, permutation=(1, 0)), [normal(33, 50)]),
    "head split": (
        lambda b, x: b.transpose(b.reshape(x, shape=(2, 7, 3, 8)), permutation=(0, 2, 1, 3)),
        [normal(2, 7, 24)],
    ),
    "reshape across axes": (lambda b, x: b.reshape(x, shape=(8, 9)), [normal(6, 12)]),
    "slice": (
        lambda b, x: b.slice(x, starts=(1, 3), limits=(4, 45), strides=(2, 3)), [normal(4, 50)]
    ),
    "reverse": (lambda b, x: b.reverse(x, axes=(1,)), [normal(4, 50)]),
    "windows": (
        lambda b, x: b.windows(x, axes=(0, 1), sizes=(2, 3), strides=(1, 2), dilations=(2, 1)),
        [normal(6, 50)],
    ),
    "pad": (
        lambda b, x, v: b.pad(x, v, low=(1, -1), high=(2, 0), interior=(1, 2)),
        [normal(4, 5), np.full((), 7, np.float32)],
    ),
    "concat": (
        lambda b, x, y, z: b.relu(b.concat(x, y, z, axis=1)), [normal(4, 5), normal(4, 20), normal(4, 1)]
    ),
    "take": (lambda b, x, i: b.take(x, i, axis=0), [normal(30, 50), integers(-2, 33, (3, 4))]),
    "take columns": (
        lambda b, x, i: b.take(x, i, axis=1), [normal(5, 50), integers(0, 50, (3, 4), np.int32)]
    ),
    "take along": (
        lambda b, x, i: b.take_along(x, i, axis=1), [normal(5, 50), integers(0, 50, (5, 4))]
    ),
    "gather nd": (
        lambda b, x, i: b.gather_nd(x, i, batch_dims=1), [normal(5, 6, 7), integers(0, 6, (5, 3, 1))]
    ),
    "dynamic slice": (
        lambda b, x, i, j: b.dynamic_slice(x, i, j, sizes=(2, 3)),
        [normal(5, 6), np.array(4), np.array(1)],
    ),
    "dynamic update": (
        lambda b, x, u, i, j: b.dynamic_update_slice(x, u, i, j),
        [normal(5, 6), normal(2, 3), np.array(4), np.array(1)],
    ),
    "dynamic update of whole rows": (
        lambda b, x, u, i: b.dynamic_update_slice(x, u, i, b.constant(0, "i64")),
        [normal(5, 40), normal(1, 40), np.array(7)],
    ),
    "made and put": (
        lambda b, x, h, i: (
            t := b.tanh(h),
            b.dynamic_update_slice(x, b.reshape(t, shape=(1, 3, 40)), i, i, i),
        ),
        [normal(6, 3, 40), normal(3, 40), np.array(1)],
    ),
    "put at two places, one of bools": (
        lambda b, x, p, h, i: (
            b.dynamic_update_slice(x, b.reshape(b.exp(h), shape=(1, 2, 9)), i, *[b.constant(0, "i32")] * 2),
            b.dynamic_update_slice(p, b.reshape(b.gt(h, b.neg(h)), shape=(1, 2, 9)),
                                   b.constant(3, "i32"), *[b.constant(0, "i32")] * 2),
        ),
        [normal(6, 2, 9), integers(0, 2, (4, 2, 9), np.bool_), normal(2, 9), np.array(2, np.int32)],
    ),
    "sum of rows put": (
        lambda b, x, h, i: b.dynamic_update_slice(
            x, b.reshape(b.reduce_sum(h, axes=(1,)), shape=(1, 5)), i, b.constant(0, "i64")),
        [normal(6, 5), normal(5, 70), np.array(3)],
    ),
    "product put": (
        lambda b, x, h, w, i: b.dynamic_update_slice(
            x, b.reshape(b.matmul(h, w), shape=(1, 5, 40)), i, *[b.constant(0, "i64")] * 2),
        [normal(6, 5, 40), normal(5, 30), normal(30, 40), np.array(3)],
    ),
    "put into what is made here": (
        lambda b, x, u, i: b.dynamic_update_slice(b.neg(x), u, i), [normal(30), normal(4), np.array(5)]
    ),
    "put and read": (
        lambda b, x, u, i: b.add(b.dynamic_update_slice(x, u, i), x), [normal(30), normal(4), np.array(5)]
    ),
    "sum of rows": (_reduce("sum", (2,)), [X3]),
    "sum of columns": (_reduce("sum", (1,)), [X3]),
    "sum of all": (_reduce("sum", (0, 1, 2)), [X3]),
    "sum of outer and inner": (_reduce("sum", (0, 2)), [X3]),
    "sum in sequence": (_reduce("sum", (1,), orders=("sequence",)), [normal(3, 600)]),
    "sum of 9000": (_reduce("sum", (0,)), [normal(9000)]),
    "sum of nothing": (_reduce("sum", (1,)), [np.zeros((5, 0), np.float32)]),
    "sum of one": (_reduce("sum", (1,)), [-np.zeros((5, 1), np.float32)]),
    "sum of i8": (_reduce("sum", (1,)), [integers(-99, 99, (5, 60), np.int8)]),
    "sum of f16": (_reduce("sum", (1,)), [normal(5, 60).astype(np.float16)]),
    "product": (_reduce("prod", (1,)), [normal(5, 300)]),
    "maximum": (_reduce("max", (1,)), [awkward()]),
    "minimum": (_reduce("min", (0,)), [awkward()]),
    "all": (_reduce("and", (1,)), [normal(5, 60) > -2]),
    "argmax": (lambda b, x: b.argmax(x, axis=1), [awkward()]),
    "argmin": (lambda b, x: b.argmin(x, axis=0), [awkward()]),
    "softmax": (lambda b, x: b.softmax(x, axis=1), [normal(5, 70)]),
    "softmax of columns": (lambda b, x: b.softmax(x, axis=0), [normal(70, 20)]),
    "masked softmax": (
        lambda b, x, m: b.softmax(
            b.add(b.mul(x, b.scalar_like(0.125, x)), b.broadcast(m, shape=(2, 3, 8, 16), dims=(0, 1, 2, 3))),
            axis=3,
        ),
        [normal(2, 3, 8, 16), normal(2, 1, 1, 16)],
    ),
    "log softmax": (lambda b, x: b.log_softmax(x, axis=1), [normal(7, 50)]),
    "layer norm": (
        lambda b, x, s, t: b.layer_norm(x, s, t, axis=1, epsilon=1e-5), [normal(5, 70), normal(70), normal(70)]
    ),
    "residual, layer norm, both kept": (
        lambda b, x, y: (s := b.add(x, y), b.layer_norm(s, axis=1, epsilon=1e-5)),
        [normal(5, 70), normal(5, 70)],
    ),
    "embedding, layer norm": (
        lambda b, x, i, s: b.layer_norm(b.add(b.take(x, i, axis=0), s), axis=1, epsilon=1e-5),
        [normal(30, 50), integers(0, 30, (7,)), normal(7, 50)],
    ),
    "group norm": (
        lambda b, x, s, t: b.group_norm(x, s, t, groups=2, epsilon=1e-5),
        [normal(2, 4, 5, 6), normal(4), normal(4)],
    ),
    "variance": (lambda b, x: b.variance(x, axes=(0, 2)), [normal(7, 5, 30)]),
    "statistics of a batch": (
        lambda b, x: (b.mean(x, axes=(0, 2, 3)), b.variance(x, axes=(0, 2, 3))), [normal(3, 4, 5, 6)]
    ),
    "product of matrices": (lambda b, x, w: b.matmul(x, w), [normal(5, 300), normal(300, 7)]),
    "batched product": (lambda b, x, w: b.matmul(x, w), [normal(3, 4, 30), normal(3, 30, 5)]),
    "product of nothing": (
        lambda b, x, w: b.matmul(x, w), [np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32)]
    ),
    "product of i8": (
        lambda b, x, w: b.matmul(x, w), [integers(-99, 99, (4, 30), np.int8), integers(-99, 99, (30, 5), np.int8)]
    ),
    "product of bf16": (
        lambda b, x, w: b.matmul(x, w),
        [normal(4, 30).astype(ml_dtypes.bfloat16), normal(30, 5).astype(ml_dtypes.bfloat16)],
    ),
    "contract": (
        lambda b, x, w: b.contract(
            x, w, batch_a=(1,), batch_b=(0,), contract_a=(0, 3), contract_b=(2, 1)
        ),
        [normal(3, 2, 4, 5), normal(2, 5, 3, 6)],
    ),
    "product, bias, gelu": (
        lambda b, x, w, c: b.gelu(b.add(b.matmul(x, w), b.broadcast(c, shape=(5, 7), dims=(1,)))),
        [normal(5, 40), normal(40, 7), normal(7)],
    ),
    "convolution in groups": (
        lambda b, x, w: b.conv(x, w, groups=2, **WINDOW), [X4, normal(4, 3, 3, 2)]
    ),
    "convolution of 70 channels": (
        lambda b, x, w: b.conv(x, w, **SAME), [normal(1, 70, 4, 4), normal(2, 70, 3, 3)]
    ),
    "convolution, bias, residual, relu": (
        lambda b, x, w, c, y: b.relu(
            b.add(b.add(b.conv(x, w, **SAME), b.broadcast(c, shape=(2, 4, 5, 5), dims=(1,))), y)
        ),
        [normal(2, 3, 5, 5), normal(4, 3, 3, 3), normal(4), normal(2, 4, 5, 5)],
    ),
    "convolution transposed": (
        lambda b, x, w: b.conv_transpose(x, w, output_padding=(1, 0), groups=2, **WINDOW),
        [normal(2, 6, 5, 4), normal(6, 2, 3, 2)],
    ),
    "weights of a convolution": (
        lambda b, x, y: b.conv_weight_gradient(x, y, kernel=(3, 3), **SAME),
        [normal(3, 5, 9, 12), normal(3, 37, 9, 12)],
    ),
    "weights of a strided convolution in groups": (
        lambda b, x, y: b.conv_weight_gradient(x, y, kernel=(3, 2), groups=2, **WINDOW),
        [normal(9, 6, 9, 12), normal(9, 8, 5, 12)],
    ),
    "weights of a depthwise convolution": (
        lambda b, x, y: b.conv_weight_gradient(x, y, kernel=(3, 3), **{**SAME, "groups": 20}),
        [normal(2, 20, 9, 12), normal(2, 20, 9, 12)],
    ),
    "positions of the largest": (
        lambda b, x: b.max_pool_positions(x, window=(3, 2), **WINDOW), [np.round(X4)]
    ),
    "max pool back": (
        lambda b, places, y: b.max_pool_gradient(
            places, y, window=(3, 2), shape=(2, 6, 9, 8), **WINDOW
        ),
        [PLACES, normal(2, 6, 5, 8)],
    ),
    "average pool back": (
        lambda b, y: b.avg_pool_gradient(y, window=(3, 2), shape=X4.shape, **WINDOW), [normal(2, 6, 5, 8)]
    ),
    "average pool back, padding counted": (
        lambda b, y: b.avg_pool_gradient(
            y, window=(3, 2), shape=X4.shape, count_padding=True, **WINDOW
        ),
        [normal(2, 6, 5, 8)],
    ),
    "average pool of 306 back": (
        lambda b, y: b.avg_pool_gradient(
            y, window=(17, 18), shape=(1, 2, 20, 21), strides=(1, 1), low=(8, 9), high=(8, 9),
            dilations=(1, 1),
        ),
        [normal(1, 2, 20, 22)],
    ),
    "max pool": (lambda b, x: b.max_pool(x, window=(3, 2), **WINDOW), [X4]),
    "average pool": (lambda b, x: b.avg_pool(x, window=(3, 2), **WINDOW), [X4]),
    "average pool with padding": (
        lambda b, x: b.avg_pool(x, window=(3, 2), count_padding=True, **WINDOW), [X4]
    ),
    "cumsum": (lambda b, x: b.cumsum(x, axis=1), [normal(3, 600, 2)]),
    "cumsum back, exclusive": (
        lambda b, x: b.cumsum(x, axis=1, reverse=True, exclusive=True), [normal(3, 600, 2)]
    ),
    "cummax": (lambda b, x: b.cummax(x, axis=1), [awkward()]),
    "sort": (lambda b, x: b.sort(x, axis=1, descending=False), [awkward()]),
    "argsort down": (lambda b, x: b.argsort(x, axis=1, descending=True), [awkward()]),
    "top 5": (lambda b, x: b.topk(x, axis=1, k=5, largest=True), [awkward()]),
    **{
        f"scatter {mode}": (
            lambda b, x, i, u, mode=mode: b.scatter_nd(x, i, u, mode=mode),
            [normal(5, 4), integers(-1, 6, (900, 1)), normal(900, 4)],
        )
        for mode in ("set", "add", "mul", "max")
    },
    "scatter along": (
        lambda b, x, i, u: b.scatter_along(x, i, u, axis=0, mode="add"),
        [normal(5, 4), integers(0, 5, (30, 4)), normal(30, 4)],
    ),
    # Memory is for as many rows as are hit; of one of them more than one chunk of hits.
    **{
        f"{mode} at few of many rows": (
            lambda b, x, i, u, mode=mode: b.scatter_nd(x, i, u, mode=mode),
            [normal(1500, 5), few_rows(1500, 600, often=400), normal(600, 5)],
        )
        for mode in ("add", "mul")
    },
    "added at pairs of indices": (
        lambda b, x, i, u: b.scatter_nd(x, i, u, mode="add"),
        [normal(5, 4, 3), integers(-1, 6, (300, 2)), normal(300, 3)],
    ),
    "cholesky": (lambda b, x: b.cholesky(x), [positive(37)]),
    "cholesky of a batch, not all positive": (
        lambda b, x: b.cholesky(x), [np.stack([positive(5), positive(5) - 6 * np.eye(5, dtype="f")])]
    ),
    "lu": (lambda b, x: b.lu(x), [np.round(normal(37, 40), 1)]),
    "lu of a tall batch, one singular": (
        lambda b, x: b.lu(x), [np.stack([normal(7, 5), np.ones((7, 5), np.float32)])]
    ),
    "lu of nan": (lambda b, x: b.lu(x), [awkward(6, 10)]),
    "row order": (lambda b, x: b.row_order(x, rows=6), [integers(-2, 8, (3, 5), np.int32)]),
    **{
        f"triangular solve, {'lower' if lower else 'upper'}{', transposed' if transposed else ''}": (
            lambda b, a, x, lower=lower, transposed=transposed: b.triangular_solve(
                a, x, lower=lower, transposed=transposed, unit_diagonal=transposed
            ),
            [positive(5), normal(5, 3)] if lower else [np.stack([positive(37)] * 2), normal(2, 37, 3)],
        )
        for lower in (False, True)
        for transposed in (False, True)
    },
    "householder": (lambda b, x: b.householder(x), [np.tril(normal(2, 7, 5), 2)]),
    "reflect": (
        lambda b, x, tau, c: b.reflect(x, tau, c), [normal(7, 5), normal(5), normal(7, 20)]
    ),
    "reflect, transposed": (
        lambda b, x, tau, c: b.reflect(x, tau, c, transposed=True),
        [normal(2, 7, 5), np.round(normal(2, 4)), normal(2, 7, 3)],
    ),
    "eigh": (lambda b, x: b.eigh(x), [np.stack([normal(5, 5), awkward(5, 10)[:, :5]])]),
    "orthogonal columns": (
        lambda b, x: b.orthogonal_columns(x), [np.stack([normal(6, 4), np.ones((6, 4), np.float32), awkward(6, 10)[:, 2:6]])]
    ),
    "random normal": (
        lambda b, seed: b.random_normal(seed, shape=(7, 3), stream=3), [np.array(123456789012345)]
    ),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_plain_loops_have_the_reference_bits(name):
    build, arrays = CASES[name]
    op = group(build, *arrays)
    assert_same_bits(interpreted(op, arrays), reference(op, arrays), name)


#: Families whose schedules are this package's; products have tests of their own.
SCHEDULED = (
    "add relu", "gelu", "bias and residual", "bf16", "iota", "transpose", "concat", "sum of rows",
    "sum of columns", "sum of outer and inner", "sum of 9000", "maximum", "argmax", "softmax",
    "softmax of columns", "masked softmax", "layer norm", "residual, layer norm, both kept",
    "max pool", "average pool", "remainder", "take", "cholesky of a batch, not all positive",
    "lu of nan", "triangular solve, lower", "householder", "eigh", "orthogonal columns",
)  # fmt: skip


@pytest.mark.sampled(9)
@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("name", SCHEDULED)
def test_every_step_of_a_schedule_has_the_reference_bits(name, width):
    build, arrays = CASES[name]
    op = group(build, *arrays)
    wanted = reference(op, arrays)
    for step in schedule(lower_group(op).function, width).steps:
        assert_same_bits(interpreted(op, arrays, step.function), wanted, f"{name}: {step.name}")


@pytest.mark.sampled(48)
@pytest.mark.parametrize(
    "name",
    [
        *(f"{source} to {target}" for source, target in NARROW_CASTS),
        "floats to i4 saturate",
        "bits read as they are",
        "i4 select and pad",
        "bools of shifted joins",
        "add relu",
        "bf16",
        "f16",
        "remainder",
        "integer power",
        "cast to fp8",
        "transpose",
        "head split",
        "pad",
        "concat",
        "take",
        "sum of rows",
        "sum of columns",
        "sum of 9000",
        "maximum",
        "argmax",
        "softmax",
        "layer norm",
        "residual, layer norm, both kept",
        "product of bf16",
        "max pool",
        "cumsum",
        "top 5",
        "cholesky",
        "lu",
        "triangular solve, upper",
        "reflect",
        "eigh",
        "orthogonal columns",
        "scatter add",
        "add at few of many rows",
        "random normal",
    ],
)
def test_compiled_kernels_have_the_reference_bits(name):
    build, arrays = CASES[name]
    op = group(build, *arrays)
    function = lower_group(op).function
    family = function.attributes["family"]
    made = function if family == "contraction" else schedule(function).function
    assert_same_bits(compiled(op, arrays, made), reference(op, arrays), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add relu", "softmax", "layer norm", "transpose"])
def test_bits_do_not_depend_on_threads_tiles_or_vector_width(name):
    build, arrays = CASES[name]
    op = group(build, *arrays)
    kernel = lower_group(op).function
    wanted = reference(op, arrays)
    for width in (8, 16):
        function = schedule(kernel, width).function
        for slices in (1, 2):
            made = compiled(op, arrays, function, slices=slices)
            assert_same_bits(made, wanted, f"{name}, width {width}, {slices} slices")
    from core_compiler.scheduling.schedules import elementwise

    if kernel.attributes["family"] == "elementwise":
        small = elementwise.schedule(kernel, 16, block=32).function
        assert work_items(small, lower_group(op).sizes) >= 1
        assert_same_bits(compiled(op, arrays, small, slices=2), wanted, "blocks of 32")


@pytest.mark.parametrize("orders", [(None, None), ((1, 0), None), ((1, 0), (1, 0))])
def test_layouts_change_addresses_only(orders):
    arrays = [normal(7, 50), normal(7, 50)]
    op = group(lambda b, x, y: b.mul(b.exp(x), y), *arrays, orders=orders)
    plain = group(lambda b, x, y: b.mul(b.exp(x), y), *arrays)
    made = interpreted(op, arrays, schedule(lower_group(op).function).function)
    assert_same_bits(made, reference(plain, arrays))


def test_row_i_of_a_batch_equals_the_batch_of_one():
    x = normal(6, 70)
    op = group(lambda b, v: b.softmax(v, axis=1), x)
    (whole,) = interpreted(op, [x])
    for i in range(len(x)):
        one = group(lambda b, v: b.softmax(v, axis=1), x[i : i + 1])
        (row,) = interpreted(one, [x[i : i + 1]])
        assert row.tobytes() == whole[i : i + 1].tobytes()


# -- chains of elementwise ops and index maps --------------------------------------------------------


@st.composite
def chains(draw):
    """A function that applies random index maps and elementwise ops to a tensor of shape (4, 6, 5)."""
    steps = draw(st.lists(st.sampled_from(
        ["neg", "exp", "abs", "transpose", "reshape", "slice", "reverse", "broadcast", "add self"]
    ), min_size=1, max_size=6))  # fmt: skip
    numbers = [draw(st.integers(0, 5)) for _ in steps]
    return tuple(zip(steps, numbers, strict=True))


def _apply(b, x, step, number):
    shape = x.type.shape
    if step in ("neg", "exp", "abs"):
        return getattr(b, step)(x)
    if step == "transpose":
        axes = list(range(len(shape)))
        return b.transpose(x, permutation=tuple(np.roll(axes, number)))
    if step == "reshape":
        total = int(np.prod(shape))
        divisors = [d for d in (1, 2, 3, 4, 5, 6) if total % d == 0]
        first = divisors[number % len(divisors)]
        return b.reshape(x, shape=(first, total // first))
    if step == "slice":
        starts = tuple(min(number % 2, d - 1) for d in shape)
        return b.slice(x, starts=starts, limits=shape, strides=tuple(1 + number % 2 for _ in shape))
    if step == "reverse":
        return b.reverse(x, axes=(number % len(shape),))
    if step == "broadcast":
        return (
            b.broadcast(x, shape=(2, *shape), dims=tuple(range(1, len(shape) + 1)))
            if len(shape) < 4
            else x
        )
    return b.add(x, x)


@settings(max_examples=examples(40))
@given(chains())
def test_chains_of_index_maps_and_elementwise_ops(steps):
    x = normal(4, 6, 5)

    def build(b, value):
        for step, number in steps:
            value = _apply(b, value, step, number)
        return b.neg(value)

    op = group(build, x)
    wanted = reference(op, [x])
    assert_same_bits(interpreted(op, [x]), wanted, str(steps))
    scheduled = schedule(lower_group(op).function).function
    assert_same_bits(interpreted(op, [x], scheduled), wanted, f"{steps}, scheduled")


def test_each_kernel_op_comes_from_the_op_it_computes():
    """Not from the operand that was written last before it."""
    made = group(lambda b, x, y, z: b.add(z, b.exp(b.mul(x, y))), *[normal(7, 50)] * 3)
    block = made.regions[0]
    ops = tuple(o.with_(origin=Origin.root(FrontendNode(o.kind, o.kind))) for o in block.ops)
    made = made.with_(regions=(Block(block.arguments, ops, block.outputs),))
    written = {
        op.kind: [node.name for node in op.origin.nodes()]
        for op in lower_group(made).function.body.walk()
        if op.origin is not None
    }
    assert written["kernel.add"] == ["core.add"]
    assert written["kernel.mul"] == ["core.mul"]
