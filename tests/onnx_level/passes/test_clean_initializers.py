"""Constants become initializers, and equal initializers become one that no caller replaces."""

from __future__ import annotations

from core_compiler.onnx_level.passes.clean_initializers import CleanInitializers
from tests.onnx_level.passes import specs


def test_equal_initializers_become_the_first_of_them() -> None:
    """Of the same bytes, dtype and shape: -0.0 is not 0.0, a vector of them no matrix."""
    specs.becomes(
        CleanInitializers(),
        """g (float[1, 2] x) => (float[1, 2] y)
        <float[2] a = {0, 1}, float[2] n = {-0.0, 1}, float[2] b = {0, 1}, float[1, 2] m = {0, 1},
         int32[2] k = {0, 1065353216}, float[2] c = {0, 1}> {
          h = Add(x, b)  i = Mul(h, n)  j = Add(i, c)  o = Max(j, m, a)  f = Cast<to = 1>(k)
          y = Sub(o, f) }""",
        """g (float[1, 2] x) => (float[1, 2] y)
        <float[2] a = {0, 1}, float[2] n = {-0.0, 1}, float[1, 2] m = {0, 1},
         int32[2] k = {0, 1065353216}> {
          h = Add(x, a)  i = Mul(h, n)  j = Add(i, a)  o = Max(j, m, a)  f = Cast<to = 1>(k)
          y = Sub(o, f) }""",
        ["merge equal initializers"] * 2,
    )


def test_a_constant_becomes_an_initializer_of_its_name() -> None:
    """One that the file gives no type, and one of a declared type; a list of numbers stays."""
    specs.becomes(
        CleanInitializers(),
        """g (float[2] x) => (float[2] y) <float[2] d> {
          c = Constant<value = float[2] {1.0, 2.0}>()  d = Constant<value = float[2] {3.0, 4.0}>()
          l = Constant<value_floats = [1.0, 2.0]>()  h = Add(x, c)  i = Mul(h, d)  y = Sub(i, l) }
        """,
        """g (float[2] x) => (float[2] y) <float[2] c = {1, 2}, float[2] d = {3, 4}> {
          l = Constant<value_floats = [1.0, 2.0]>()  h = Add(x, c)  i = Mul(h, d)  y = Sub(i, l) }
        """,
        ["Constant => initializer"] * 2,
    )


#: An initializer that is an input too, which a caller may replace, and an equal one.
REPLACEABLE = """g (float[2] x, float[2] w = {1, 2}) => (float[2] y)
<float[2] a = {1, 2}> { h = Mul(x, w)  y = Add(h, a) }"""


def test_an_initializer_that_a_caller_may_replace_is_fixed_and_no_input_any_more() -> None:
    specs.becomes(
        CleanInitializers(),
        REPLACEABLE,
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Mul(x, w)  y = Add(h, w) }",
        ["fix an initializer", "merge equal initializers"],
    )


def test_it_stays_an_input_if_asked_and_nothing_is_merged_with_it() -> None:
    specs.stays(CleanInitializers(keep_overridable=True), specs.module_of(REPLACEABLE))


def test_results_of_the_model_keep_their_own_initializers() -> None:
    """Each has its name there; one that is no result is merged all the same."""
    specs.becomes(
        CleanInitializers(),
        """g (float[2] x) => (float[2] y, float[2] a, float[2] b)
        <float[2] a = {1, 2}, float[2] b = {1, 2}, float[2] c = {1, 2}> { y = Add(x, c) }""",
        """g (float[2] x) => (float[2] y, float[2] a, float[2] b)
        <float[2] a = {1, 2}, float[2] b = {1, 2}> { y = Add(x, a) }""",
        ["merge equal initializers"],
    )


def test_a_subgraph_has_initializers_of_its_own() -> None:
    """Two results of a branch may be one initializer: the file copies it."""
    specs.becomes(
        CleanInitializers(),
        """g (float[2] x, bool c) => (float[2] y, float[2] z) <float[2] a = {1, 2}> {
          h = Add(x, a)
          y, z = If(c) <
            then_branch = t () => (float[2] p, float[2] q) {
              p = Constant<value = float[2] {1.0, 2.0}>()
              q = Constant<value = float[2] {1.0, 2.0}>() },
            else_branch = e () => (float[2] r, float[2] s) {
              k = Constant<value = float[2] {1.0, 2.0}>()  r = Sub(h, k)  s = Mul(k, h) } > }""",
        """g (float[2] x, bool c) => (float[2] y, float[2] z) <float[2] a = {1, 2}> {
          h = Add(x, a)
          y, z = If(c) <
            then_branch = t () => (float[2] p, float[2] p_2) <float[2] p = {1, 2}> {
              p_2 = Identity(p) },
            else_branch = e () => (float[2] r, float[2] s) <float[2] k = {1, 2}> {
              r = Sub(h, k)  s = Mul(k, h) } > }""",
        [*["Constant => initializer"] * 2, "merge equal initializers", "Constant => initializer"],
    )
