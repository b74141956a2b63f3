"""Branches that are always taken are inlined, and loops of few iterations unrolled."""

from __future__ import annotations

import pytest

from core_compiler.onnx_level.passes.simplify_control_flow import SimplifyControlFlow
from tests.onnx_level.passes import specs

BRANCH = """g (float[3] x, bool c, bool r = {{1}}) => (float[3] y)
<bool yes = {{1}}, bool no = {{0}}> {{
  h = Neg(x)
  y = If({0}) <then_branch = t () => (float[3] a) {{ k = Add(h, x)  a = Neg(k) }},
               else_branch = e () => (float[3] h) {{}}> }}"""


@pytest.mark.parametrize(
    ("condition", "types", "left", "rule"),
    [
        ("yes", ", float[3] a", "k = Add(h, x)  a = Neg(k)  y = Identity(a)", "If true"),
        ("no", "", "y = Identity(h)", "If false"),  # a branch that only hands on what is outside
    ],
)
def test_the_branch_of_a_known_condition_takes_the_place_of_the_node(
    condition: str, types: str, left: str, rule: str
) -> None:
    specs.becomes(
        SimplifyControlFlow(),
        BRANCH.format(condition),
        f"""g (float[3] x, bool c, bool r = {{1}}) => (float[3] y)
        <bool yes = {{1}}, bool no = {{0}}{types}> {{ h = Neg(x)  {left} }}""",
        [rule],
    )


def test_branches_within_branches_and_within_iterations_follow() -> None:
    """``g`` is true in every iteration that there is."""
    specs.becomes(
        SimplifyControlFlow(),
        """g (float[3] x, bool c) => (float[3] y) <int64 n = {2}, bool no = {0}> {
          l = Loop(n, , x) <body = b (int64 i, bool g, float[3] a) => (bool g, float[3] s) {
            s = If(g) <then_branch = t () => (float[3] p) { p = Neg(a) },
                       else_branch = e () => (float[3] q) { q = Abs(a) }> }>
          y = If(c) <
            then_branch = u () => (float[3] v) {
              v = If(no) <then_branch = w () => (float[3] m) { m = Neg(l) },
                          else_branch = z () => (float[3] o) { o = Abs(l) }> },
            else_branch = f () => (float[3] r) { r = Relu(l) }> }""",
        """g (float[3] x, bool c) => (float[3] y)
        <int64 n = {2}, bool no = {0}, int64 weight = {0}, bool weight_2 = {1},
         int64 weight_3 = {1}, bool weight_4 = {1}, float[3] p, float[3] s,
         float[3] p_2, float[3] s_2> {
          p = Neg(x)  s = Identity(p)  p_2 = Neg(s)  s_2 = Identity(p_2)  l = Identity(s_2)
          y = If(c) <
            then_branch = u () => (float[3] v) <float[3] o> { o = Abs(l)  v = Identity(o) },
            else_branch = f () => (float[3] r) { r = Relu(l) }> }""",
        ["If false", "Loop of 2", "If true", "If true"],
    )


LOOP = """g (float[3] x, float[3] u, int64 m, bool c) => (float[3] y, float[3] z, float[k, 3] rows)
<int64 n = {%s}, bool go = {1}> {
  y, z, rows = Loop(n, go, x, u) <
    body = b (int64 i, bool g, float[3] a, float[3] b) => (bool g2, float[3] t, float[3] a,
                                                           float[3] row) {
      g2 = Identity(g)  f = Cast<to = 1>(i)  t = Add(b, f)  row = Sub(t, a) }> }"""


@pytest.mark.parametrize(("opset", "axes"), [(18, ", weight_5)"), (11, ")")])
def test_a_loop_becomes_its_iterations_one_after_the_other(opset: int, axes: str) -> None:
    """Each has its own number, takes what the one before carries, and adds a row."""
    one = "Unsqueeze" if opset == 18 else "Unsqueeze<axes = [0]>"
    more = ", int64[1] weight_5 = {0}" if opset == 18 else ""
    specs.becomes(
        SimplifyControlFlow(),
        specs.module_of(LOOP % 2, opset),
        specs.module_of(
            f"""g (float[3] x, float[3] u, int64 m, bool c)
        => (float[3] y, float[3] z, float[k, 3] rows)
        <int64 n = {{2}}, bool go = {{1}}, int64 weight = {{0}}, bool weight_2 = {{1}},
         int64 weight_3 = {{1}}, bool weight_4 = {{1}}{more}, bool g2, float[3] t, float[3] row,
         bool g2_2, float[3] t_2, float[3] row_2> {{
          g2 = Identity(weight_2)  f = Cast<to = 1>(weight)  t = Add(u, f)  row = Sub(t, x)
          g2_2 = Identity(weight_4)  f_2 = Cast<to = 1>(weight_3)  t_2 = Add(x, f_2)
          row_2 = Sub(t_2, t)
          unsqueeze = {one}(row{axes}  unsqueeze_2 = {one}(row_2{axes}
          concat = Concat<axis = 0>(unsqueeze, unsqueeze_2)
          y = Identity(t_2)  z = Identity(t)  rows = Identity(concat) }}""",
            opset,
        ),
        ["Loop of 2"],
    )


def test_a_loop_that_never_begins_hands_on_what_it_is_given() -> None:
    specs.becomes(
        SimplifyControlFlow(),
        """g (float[3] x) => (float[3] y) <int64 n = {5}, bool never = {0}> {
          y = Loop(n, never, x) <body = b (int64 i, bool g, float[3] a) => (bool g, float[3] s) {
            s = Neg(a) }> }""",
        """g (float[3] x) => (float[3] y) <int64 n = {5}, bool never = {0}> { y = Identity(x) }""",
        ["Loop of 0"],
    )


def test_a_result_that_is_left_out_stays_so() -> None:
    made, fired = specs.apply(
        SimplifyControlFlow(),
        specs.module_of(
            """g (float[3] x) => (float[3] y) <int64 n = {2}> {
          h, y = Loop(n, , x, x) <
            body = b (int64 i, bool g, float[3] a, float[3] b) => (bool g, float[3] s, float[3] t) {
              s = Neg(a)  t = Abs(b) }> }""".replace("h, y", ", y"),
        ),
    )
    assert fired == ["Loop of 2"]
    assert [op.results[0].name for op in made.main.body.ops if op.kind == "onnx.Identity"] == ["y"]


ENDS = ("g2 = Identity(g)", "g2 = Not(g)")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (BRANCH.format("c"), "the condition of %y (onnx.If) is not a constant"),
        (BRANCH.format("r"), "the condition of %y (onnx.If) is not a constant"),  # may be replaced
        (LOOP % 9, "%y (onnx.Loop) runs 9 times"),
        (LOOP % 0, "%y (onnx.Loop) runs 0 times and returns empty tensors"),
        ((LOOP % 2).replace("(n,", "(m,"), "the trip count of %y (onnx.Loop) is not a constant"),
        ((LOOP % 2).replace("(n,", "(,"), "the trip count of %y (onnx.Loop) is not a constant"),
        (
            (LOOP % 2).replace("go,", "c,"),
            "the initial condition of %y (onnx.Loop) is not a constant",
        ),
        ((LOOP % 2).replace(*ENDS), "the condition of %y (onnx.Loop) is computed in its body"),
        (
            """g (float[2, 3] x) => (float[2, 3] y) {
              y = Scan<num_scan_inputs = 1, body = b (float[3] a) => (float[3] s) { s = Neg(a) }>(x)
            }""",
            "onnx.Scan is neither a branch nor a loop",
        ),
    ],
)
def test_control_flow_stays_with_a_reason(source: str, reason: str) -> None:
    module = specs.module_of(source)
    assert specs.reason(SimplifyControlFlow(), module, "y") == reason
    specs.stays(SimplifyControlFlow(), module)
