"""The types of values are inferred as ONNX infers them; nothing else of the model changes."""

from __future__ import annotations

from core_compiler.ir import Module
from core_compiler.onnx_level.passes import infer_shapes
from core_compiler.onnx_level.passes.infer_shapes import InferShapes
from core_compiler.onnx_level.write import write
from core_compiler.passes.base import PassContext
from tests.onnx_level.passes import specs

KNOWN = "its type is known"


def test_values_and_results_get_the_types_that_follow_from_the_inputs() -> None:
    """Sizes without a number keep their name; a second run finds nothing."""
    made = specs.becomes(
        InferShapes(),
        """g (float[n, 4] x, float[4, 2] w) => (float[n, 2] y, z, i)
        <int64[1] k = {1}, float[?, 1] v> {
          h = MatMul(x, w)  y = Relu(h)  z = Shape(h)  v, i = TopK<axis = 1>(h, k) }""",
        """g (float[n, 4] x, float[4, 2] w) => (float[n, 2] y, int64[2] z, int64[n, 1] i)
        <int64[1] k = {1}, float[n, 2] h, float[n, 1] v> {
          h = MatMul(x, w)  y = Relu(h)  z = Shape(h)  v, i = TopK<axis = 1>(h, k) }""",
        [KNOWN] * 3,
    )
    specs.stays(InferShapes(), made)


def test_the_values_of_small_tensors_are_followed() -> None:
    """The size that a Reshape is given is computed from a shape."""
    specs.becomes(
        InferShapes(),
        """g (float[2, 3, 4] x) => (float[r, c] y) <int64[1] first = {0}, int64[1] rest = {-1}> {
          s = Shape(x)  b = Gather<axis = 0>(s, first)  t = Concat<axis = 0>(b, rest)
          h = Reshape(x, t)  y = Neg(h) }""",
        """g (float[2, 3, 4] x) => (float[2, 12] y) <int64[1] first = {0}, int64[1] rest = {-1},
         int64[3] s, int64[1] b, int64[2] t, float[2, 12] h> {
          s = Shape(x)  b = Gather<axis = 0>(s, first)  t = Concat<axis = 0>(b, rest)
          h = Reshape(x, t)  y = Neg(h) }""",
        [KNOWN] * 5,
    )


def test_values_of_subgraphs_are_typed_too() -> None:
    specs.becomes(
        InferShapes(),
        """g (float[2, 3] x, bool c) => (float[a, b] y) {
          h = Neg(x)
          y = If(c) <then_branch = t () => (p) { q = Exp(h)  p = Neg(q) },
                     else_branch = e () => (float[2, n] r) { r = Abs(h) }> }""",
        """g (float[2, 3] x, bool c) => (float[2, 3] y) <float[2, 3] h> {
          h = Neg(x)
          y = If(c) <then_branch = t () => (float[2, 3] p) <float[2, 3] q> {
                       q = Exp(h)  p = Neg(q) },
                     else_branch = e () => (float[2, 3] r) { r = Abs(h) }> }""",
        [KNOWN] * 5,
    )


def test_a_type_of_the_file_gets_sizes_and_is_never_contradicted(monkeypatch) -> None:
    """Whatever ONNX says: a wrong size, rank or element type is the importer's to report."""
    body = "{ h = Neg(x)  i = Neg(x)  j = Neg(x)  k = Neg(x)  l = Neg(x)  y = Abs(h) }"

    def graph(types: str) -> Module:
        return specs.module_of(f"g (float[2, 3] x) => (float[2, 3] y) <{types}> {body}")

    said = graph("float[2, 3] h, float[2, 3] i, float[2, 3] j, float[2, 3] k, float[s, ?] l")
    monkeypatch.setattr(infer_shapes, "infer_types", lambda model: write(said).SerializeToString())
    context = PassContext()
    made = InferShapes().run(
        graph("float[n, 3] h, float[5, m] i, float[2] j, int64[2, 3] k, float[n, m] l"), context
    )
    specs.assert_same_model(
        made, graph("float[2, 3] h, float[5, 3] i, float[2] j, int64[2, 3] k, float[n, m] l")
    )
    assert [r.rule for r in context.rewrites] == [KNOWN] * 2


def test_a_model_that_onnx_cannot_infer_stays_with_a_warning() -> None:
    module = specs.module_of(
        "g (float[2] x) => (float[2] y) { h = Neg(x)  k = other.Op(h)  y = Abs(h) }"
    )
    context = PassContext()
    assert InferShapes().run(module, context) is module
    (note,) = context.notes
    assert note.severity == "warning"
    assert note.message.startswith("ONNX cannot infer shapes: ")
    assert note.message.endswith("No opset import for domain other optype Op")
