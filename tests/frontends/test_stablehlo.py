"""JAX functions and StableHLO programs: values beside jax, names, places, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.support.errors import UserError
from tests.conformance.outcomes import by_cpu, by_reference
from tests.slow import slow_but

pytest.importorskip("jax", reason="the frontend reads programs by jaxlib")

import jax
import jax.numpy as jnp
from jax import export, lax

from core_compiler.frontends.stablehlo import import_file, import_function, import_program
from core_compiler.frontends.stablehlo.jax import leaves, on_leaves

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)).astype(np.float32)
IMAGES = RNG.standard_normal((2, 8, 8, 3)).astype(np.float32)


def agree(function, *arguments, execute=by_reference, tolerance=1e-5):
    """Import ``function``, execute it, and compare every leaf of its result with jax's."""
    imported = import_function(function, arguments)
    wanted = on_leaves(function, arguments)(*leaves(arguments))
    made = execute(imported, list(leaves(arguments)))
    assert len(made) == len(wanted)
    for ours, theirs in zip(made, wanted, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=tolerance
        )
    return imported


def ops_of(imported, kind: str) -> list:
    return [op for op in imported.module.walk() if op.kind == kind]


# -- values ----------------------------------------------------------------------------------------


def attention(q, k, v):
    with jax.named_scope("attention"):
        scores = q @ jnp.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        return jax.nn.softmax(jnp.where(jnp.tri(q.shape[-2], dtype=bool), scores, -jnp.inf)) @ v


def convolution(x, w):
    y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


PROGRAMS = {
    "softmax": (lambda x: jax.nn.softmax(x), (X,)),
    "attention": (attention, tuple(RNG.standard_normal((3, 2, 5, 8)).astype(np.float32))),
    "convolution": (convolution, (IMAGES, RNG.standard_normal((3, 3, 3, 4)).astype(np.float32))),
    "mean of windows": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
        (IMAGES,),
    ),
    "argmax": (lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1)), (X,)),
    "sort by two keys": (
        lambda x: lax.sort((jnp.round(x), -x, x), dimension=1, num_keys=2),
        (X,),
    ),
    "sort with nan": (lambda x: jnp.sort(jnp.where(x > 1, jnp.nan, x), 0), (X,)),
    "top k": (lambda x: lax.top_k(x, 3), (X,)),
    "gather": (lambda x, i: x[i, :], (X, np.array([3, 0, 9, -1], np.int32))),
    "scatter": (lambda x, i: x.at[i, 1:3].add(1.5), (X, np.array([0, 2, 2], np.int32))),
    "cumulative": (lambda x: (jnp.cumsum(x, 0), lax.cummax(x, 1, reverse=True)), (X,)),
    "while": (
        lambda x: lax.while_loop(lambda s: jnp.sum(s) < 500, lambda s: s * 1.5, jnp.abs(x)),
        (X,),
    ),
    "scan": (lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x), (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X,)),
    "switch": (
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x),
        (np.int32(1), X),
    ),
    "special": (
        lambda x: (lax.erf(x), jax.scipy.special.gammaln(jnp.abs(x)), lax.erf_inv(x / 4)),
        (X,),
    ),
    "random": (lambda x: x + jax.random.normal(jax.random.key(3), x.shape), (X,)),
    "bfloat16": (lambda x: x.astype(jnp.bfloat16) * jnp.bfloat16(1.5), (X,)),
    "bits": (
        lambda x: (
            lax.population_count(lax.bitcast_convert_type(x, jnp.uint32)),
            lax.clz(lax.bitcast_convert_type(x, jnp.int32)),
            lax.bitcast_convert_type(x, jnp.uint8),
        ),
        (X,),
    ),
    "solve": (
        lambda a, y: jax.scipy.linalg.cho_solve(
            (jnp.linalg.cholesky(a @ a.T + 6 * jnp.eye(4)), True), y
        ),
        (X, X),
    ),
    "own reduction": (
        lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b * 0, (1,)),
        (X,),
    ),
    "gradient of pooling": (
        jax.grad(lambda x: jnp.sum(convolution(x, jnp.ones((3, 3, 3, 4))) ** 2)),
        (IMAGES,),
    ),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_agrees_with_jax(name):
    function, arguments = PROGRAMS[name]
    agree(function, *arguments, tolerance=1e-4 if name == "gradient of pooling" else 1e-5)


@pytest.mark.parametrize("name", slow_but(("while",), PROGRAMS))
def test_the_cpu_agrees_with_jax(name):
    function, arguments = PROGRAMS[name]
    agree(
        function,
        *arguments,
        execute=by_cpu,
        tolerance=1e-4 if name == "gradient of pooling" else 1e-5,
    )


def test_booleans_have_extremes_bounds_and_bits():
    x = X > 0
    agree(lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1), jnp.argmax(x)), x)
    agree(lambda x, y: (lax.clamp(y, x, x | y), lax.clamp(x, y, x)), x, X > 1)
    agree(lambda x: lax.bitcast_convert_type(x, jnp.bool_), x)
    program = (
        "func.func @main(%x: tensor<3xi1>) -> tensor<3xi1> {\n"
        "  %0 = stablehlo.bitcast_convert %x : (tensor<3xi1>) -> tensor<3xi1>\n"
        "  return %0 : tensor<3xi1>\n}"
    )
    np.testing.assert_array_equal(by_reference(import_program(program), [x[0, :3]])[0], x[0, :3])


def test_a_reduction_of_nothing_is_its_start_value():
    agree(
        lambda x: (jnp.max(x, 0, initial=-3.0), jnp.min(x, initial=3.0), x.sum(0), x.prod()),
        np.zeros((0, 3), np.float32),
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", [(5, 10), (8, 7), (4, 3), (3, 12)])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_fewer_bits_are_rounded_as_xla_does(kind, form):
    """Over random bits: subnormals, infinities and NaN among them."""
    kind = jnp.dtype(kind)
    bits = RNG.integers(0, 1 << (8 * kind.itemsize), 5000, dtype=np.uint64)
    x = bits.astype(f"u{kind.itemsize}").view(kind)
    agree(lambda x: lax.reduce_precision(x, *form), x, tolerance=0)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_what_is_too_large_for_a_narrow_float_is_not_its_largest(kind):
    x = np.array([1e9, -1e9, 448, 464, 465, 0.1, np.inf, np.nan, 57344, 61440], np.float32)
    agree(lambda x: lax.convert_element_type(x, kind), x, tolerance=0)


def test_products_of_integers_as_floats_do_not_wrap():
    x = RNG.integers(-(2**30), 2**30, (4, 8)).astype(np.int32)
    agree(lambda x: lax.dot(x, x.T, preferred_element_type=jnp.float32) / 2.0**60, x)


def test_unsigned_indices_beyond_i64_are_beyond_the_axis():
    program = """func.func @main(%x: tensor<5xf32>, %i: tensor<3x1xui64>) -> tensor<3xf32> {
      %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1>}> : (tensor<5xf32>, tensor<3x1xui64>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    given = [np.arange(5, dtype=np.float32), np.array([[1], [2**63], [2**64 - 1]], np.uint64)]
    np.testing.assert_array_equal(by_reference(import_program(program), given)[0], [1, 4, 4])


def test_what_negative_padding_leaves_out_is_the_start_value():
    program = """func.func @main(%x: tensor<6xf32>, %y: tensor<2xf32>) -> tensor<6xf32> {
      %s = stablehlo.constant dense<7.0> : tensor<f32>
      %0 = "stablehlo.select_and_scatter"(%x, %y, %s) <{window_dimensions = array<i64: 2>,
        window_strides = array<i64: 2>, padding = dense<[[0, -2]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }, {
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }) : (tensor<6xf32>, tensor<2xf32>, tensor<f32>) -> tensor<6xf32>
      return %0 : tensor<6xf32>
    }"""
    given = [np.array([1, 2, 4, 3, 9, 9], np.float32), np.array([10, 20], np.float32)]
    made = by_reference(import_program(program), given)[0]
    np.testing.assert_array_equal(made, [7, 17, 27, 7, 7, 7])


@pytest.mark.parametrize("asks", ["EQ, %b", "NE, %zero", "GT, %zero"])
def test_a_comparator_that_changes_its_operands_is_no_comparison(asks):
    """Jax's own makes zeros alike and NaN alike; this one makes other elements 0 before."""
    words = asks.split(", ")
    program = f"""func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {{
      %0 = "stablehlo.sort"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %1 = stablehlo.compare {words[0]}, %a, {words[1]}
            : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %2 = stablehlo.select %1, %zero, %a : tensor<i1>, tensor<f32>
        %3 = stablehlo.compare LT, %2, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      }}) : (tensor<5xf32>) -> tensor<5xf32>
      return %0 : tensor<5xf32>
    }}"""
    with pytest.raises(UserError, match="comparator other than a"):
        import_program(program)


def test_a_comparison_that_names_its_axes_is_refused_in_words():
    program = """func.func @main(%x: tensor<3xf32>, %y: tensor<3x3xf32>) -> tensor<3x3xi1> {
      %0 = "chlo.broadcast_compare"(%x, %y) {broadcast_dimensions = array<i64: 0>,
        comparison_direction = #chlo<comparison_direction LT>}
        : (tensor<3xf32>, tensor<3x3xf32>) -> tensor<3x3xi1>
      return %0 : tensor<3x3xi1>
    }"""
    with pytest.raises(UserError, match="broadcast_dimensions"):
        import_program(program)


@pytest.mark.parametrize("fold", [(lax.add, 0.0), (lax.max, -np.inf), (lax.max, 0.5)])
@pytest.mark.parametrize(
    ("shape", "window", "padding"),
    [
        ((0, 6), (2, 2), "VALID"),
        ((4, 6), (9, 2), "VALID"),
        ((0, 6), (1, 2), "SAME"),
        ((0, 6), (2, 2), ((1, 2), (0, 0))),
    ],
)
def test_windows_of_nothing(shape, window, padding, fold):
    combine, start = fold
    agree(
        lambda x: lax.reduce_window(x, np.float32(start), combine, window, (1, 1), padding),
        np.zeros(shape, np.float32),
    )


@pytest.mark.parametrize("size", [1, 6])
def test_axes_that_are_neither_indexed_nor_kept(size):
    x, i = RNG.standard_normal((5, size, 7)).astype(np.float32), np.array([[1], [4]], np.int32)
    read = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0, 1), start_index_map=(0,)
    )
    written = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=(0,)
    )
    agree(lambda x, i: lax.gather(x, i, read, (1, 1, 7)), x, i)
    agree(lambda x, i, u: lax.scatter_add(x, i, u, written), x, i, np.ones((2, 7), np.float32))


def test_a_sharding_is_nothing_on_one_device():
    text = """\
sdy.mesh @mesh = <["a"=1]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = sdy.sharding_constraint %x <@mesh, [{"a"}, {}]> : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
"""
    np.testing.assert_array_equal(by_reference(import_program(text), [X])[0], X)


@pytest.mark.slow
def test_typed_keys_are_arguments():
    def draw(key):
        return jax.random.uniform(key, (3,))

    key = jax.random.key(3)
    (made,) = by_reference(import_function(draw, (key,)), list(leaves((key,))))
    np.testing.assert_array_equal(made, draw(key))
    np.testing.assert_array_equal(np.ravel(cc.compile(draw, (key,))(key)), draw(key))


def test_recognised_forms_stay_one_op():
    """A convolution, a pooling, an arg-reduction and a running sum are not spelled out."""
    imported = agree(*((f := PROGRAMS["convolution"])[0], *f[1]))
    assert len(ops_of(imported, "core.conv")) == len(ops_of(imported, "core.max_pool")) == 1
    imported = agree(*((f := PROGRAMS["argmax"])[0], *f[1]))
    assert len(ops_of(imported, "core.argmax")) == len(ops_of(imported, "core.argmin")) == 1
    assert not ops_of(imported, "core.select")


# -- names, places, sizes --------------------------------------------------------------------------


def layer(params, x):
    with jax.named_scope("dense"):
        y = x @ params["w"] + params["b"]
    return {"out": jnp.tanh(y), "norm": (y**2).sum()}


PARAMS = {"w": np.ones((6, 5), np.float32), "b": np.zeros(5, np.float32)}


def test_a_relu_is_told_from_a_maximum():
    """JAX has another gradient of each at 0; a second function of a name has a number."""

    def call(x):
        return jax.nn.relu(x) + jax.nn.relu(x[:2]).sum() + jnp.maximum(x, 0)

    module = import_function(call, (np.ones(3, np.float32),)).module
    kinds = [op.kind for op in module.main.body.ops]
    assert kinds.count("core.relu") == 2 and kinds.count("core.max") == 1


def test_leaves_keep_their_paths_and_unused_arguments_stay():
    imported = import_function(lambda params, x, unused: layer(params, x), (PARAMS, X, X))
    assert imported.inputs == ("params['b']", "params['w']", "x", "unused")
    assert imported.outputs == ("result['norm']", "result['out']")
    assert imported.facts["frontend"] == "jax"


def test_ops_know_their_line_and_their_scope():
    imported = import_function(layer, (PARAMS, X))
    (product,) = ops_of(imported, "core.contract")
    node = product.origin.nodes()[0]
    assert node.kind == "stablehlo.dot_general"
    assert node.scope == "dense"
    with open(__file__) as own:
        assert 'params["w"]' in own.readlines()[node.line - 1]
    assert node.file == __file__
    assert __file__ in imported.sources
    for op in imported.module.walk():
        assert op.origin.nodes() or op.origin.reason


def test_a_called_function_is_the_scope_of_its_ops():
    @jax.jit
    def inner(x):
        return x * 2

    imported = import_function(lambda x: inner(x) + 1, (X,))
    (product,) = ops_of(imported, "core.mul")
    assert "inner" in product.origin.nodes()[0].scope


def test_ops_that_an_op_is_expanded_to_keep_its_line_and_its_scope():
    def function(x):
        with jax.named_scope("special"):
            return jax.scipy.special.digamma(x)  # the line

    imported = import_function(function, (X,))
    places = {
        (n.kind, n.file, n.line, n.scope)
        for op in imported.module.walk()
        for n in op.origin.nodes()
    }
    with open(__file__) as own:
        line = next(i for i, row in enumerate(own, 1) if row.endswith("# the line\n"))
    assert places == {("chlo.digamma", __file__, line, "special")}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.linalg.norm(x),
        lambda x: jax.nn.relu(x),
        lambda x: jnp.sort(x),
        lambda x: jax.nn.one_hot(jnp.arange(4), 4),
    ],
)
def test_functions_of_jax_are_at_the_line_that_calls_them(function):
    imported = import_function(function, (X,))
    line = function.__code__.co_firstlineno
    found = {(n.file, n.line) for op in imported.module.walk() for n in op.origin.nodes()}
    assert found == {(__file__, line)}


def test_ops_without_a_line_of_the_model_are_where_it_was_handed_over():
    made = cc.compile(jnp.sin, (X,), finish=False)  # here
    with open(__file__) as own:
        line = next(i for i, row in enumerate(own, 1) if row.endswith("  # here\n"))
    nodes = [op.origin.nodes()[0] for op in made.module.walk()]
    assert {(n.file, n.line) for n in nodes} == {(__file__, line)}


def test_shapes_stand_for_example_inputs():
    made = cc.compile(
        lambda p: p["x"] + p["n"],
        (
            {
                "x": jax.ShapeDtypeStruct((3,), np.float32),
                "n": jax.ShapeDtypeStruct((3,), np.int32),
            },
        ),
    )
    x = {"x": X[0, :3], "n": np.arange(3, dtype=np.int32)}
    np.testing.assert_array_equal(np.ravel(made(x)), x["x"] + np.arange(3, dtype=np.float32))


TEXT = """\
func.func @main(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
"""


def test_a_text_is_its_own_listing_and_open_sizes_are_bound():
    given = [np.full((4, 3), n, np.float32) for n in (1, 2)]
    imported = import_program(TEXT, inputs=given)
    assert imported.facts["bound"]["input0_0"] == {"size": 4, "low": 0, "high": -1}
    (made,) = by_reference(imported, given)
    np.testing.assert_array_equal(made, np.full((4, 3), 3))
    (op,) = ops_of(imported, "core.add")
    node = op.origin.nodes()[0]
    assert TEXT.splitlines()[node.line - 1].strip().startswith("%0 = stablehlo.add")
    assert imported.sources[node.file] == TEXT
    assert import_program(TEXT, sizes={"input0_0": 7, "input1_0": 7}).module.main.body.outputs[
        0
    ].type.shape == (7, 3)
    with pytest.raises(UserError, match="does not accept these sizes"):
        import_program(TEXT, sizes={"input0_0": 7, "input1_0": 5})


@pytest.mark.slow
def test_symbolic_exports_are_bound_and_their_conditions_checked(tmp_path):
    (b,) = export.symbolic_shape("b", constraints=["b >= 2"])
    made = export.export(jax.jit(lambda x: x.reshape(-1) * x.shape[0]))(
        jax.ShapeDtypeStruct((b, 3), np.float32)
    )
    path = tmp_path / "program.mlirbc"
    path.write_bytes(made.mlir_module_serialized)
    given = RNG.standard_normal((5, 3)).astype(np.float32)
    (ours,) = by_reference(import_file(path, [given]), [given])
    np.testing.assert_array_equal(ours, given.reshape(-1) * 5)
    with pytest.raises(UserError, match="b >= 2"):
        import_file(path, [given[:1]])


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("func.func @main( {", "not a StableHLO program: .*error"),
        ("", "expected a function main or one public function, got: none"),
        (b"\xff\xfe", "neither StableHLO text nor bytecode"),
        (b"ML\xefR" + bytes(40), "not a StableHLO program"),
        ("func.func @a() { return }\nfunc.func @b() { return }", "one public function, got: a, b"),
        ("func.func @main(%x: tensor<3xcomplex<f32>>) { return }", "elements of type complex<f32>"),
    ],
)
def test_what_is_no_program_is_one_line(program, says):
    with pytest.raises(UserError, match=says) as caught:
        import_program(program, name="p.mlir")
    assert caught.value.fix
    assert "\n" not in caught.value.what


def test_all_gaps_are_told_at_once_with_their_lines():
    text = """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %0 : tensor<4xf32>
  %2 = stablehlo.custom_call @other(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "foo.bar"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = stablehlo.add %2, %3 : tensor<4xf32>
  return %4 : tensor<4xf32>
}
"""
    with pytest.raises(UserError) as caught:
        import_program(text, name="p.mlir")
    said = caught.value.what
    assert said.startswith("3 ops are not supported")
    for part in (
        "a custom call of mine; program.mlir:2",
        "a custom call of other; program.mlir:4",
        "foo.bar (no translation; program.mlir:5)",
    ):
        assert part in said


@pytest.mark.parametrize("kind", [jnp.int4, jnp.uint4])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x >> 1,
        lambda x: x + x,
        lambda x: lax.shift_right_logical(x, jnp.full_like(x, 1)),
        lax.population_count,
        lax.clz,
    ],
)
def test_arithmetic_below_a_byte_is_refused_in_words(function, kind):
    with pytest.raises(UserError, match=r"computes in u?i4: convert to 8 bits") as caught:
        import_function(
            lambda x: function(x.astype(kind)).astype(jnp.int32), (np.arange(4, dtype=np.int32),)
        )
    assert "Error" not in caught.value.what


def test_numbers_that_are_a_resource_are_refused_in_words():
    text = """\
func.func @main() -> tensor<2xf32> {
  %c = stablehlo.constant dense_resource<blob> : tensor<2xf32>
  return %c : tensor<2xf32>
}
{-# dialect_resources: { builtin: { blob: "0x040000000000803F00000040" } } #-}
"""
    with pytest.raises(UserError, match="resource of the file") as caught:
        import_program(text, name="p.mlir")
    assert "Error" not in caught.value.what


def test_what_jax_cannot_trace_is_told_by_the_persons_line():
    def branches(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(UserError, match="jax cannot trace it: TracerBoolConversionError"):
        import_function(branches, (X,))
