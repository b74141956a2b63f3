"""Calls with inputs of other sizes than those a model was compiled for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.numerics.reference.digest import same_bits
from core_compiler.support.errors import UserError
from core_compiler.support.polynomial import NotPolynomial, Polynomial, fitted

torch = pytest.importorskip("torch")
nn = torch.nn

SEED = 5


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


class Rows(nn.Module):
    """A perceptron with a norm: each row by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(24, 40), nn.LayerNorm(40), nn.Linear(40, 7)

    def forward(self, x):
        return torch.softmax(self.second(self.norm(torch.relu(self.first(x)))), -1)


class Cached(nn.Module):
    """A step of attention over the keys and values so far, with learned positions."""

    def __init__(self, longest: int = 200) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(longest, 32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.head = nn.Linear(32, 50)

    def forward(self, ids, keys, values):
        place = torch.arange(keys.shape[2], keys.shape[2] + ids.shape[1])
        h = self.tokens(ids) + self.places(place)
        q, k, v = (
            layer(h).view(1, -1, 2, 16).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        seen = nn.functional.scaled_dot_product_attention(q, keys, values)
        return self.head(h + seen.transpose(1, 2).reshape(1, -1, 32)), keys, values


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return module.eval()


def exported(module: nn.Module, inputs: tuple, shapes: tuple):
    with torch.no_grad():
        return torch.export.export(module, inputs, dynamic_shapes=shapes)


def rows(most: int = 512):
    batch = torch.export.Dim("batch", min=1, max=most)
    return exported(seeded(Rows()), (torch.randn(4, 24),), ({0: batch},))


def cached(longest: int = 200, past: int = 40):
    length = torch.export.Dim("length", min=2, max=10_000)
    held = torch.randn(1, 2, past, 16)
    ids = torch.zeros(1, 1, dtype=torch.int64)
    return exported(seeded(Cached(longest)), (ids, held, held), ({}, {2: length}, {2: length}))


def how(made) -> list[str]:
    return [each.how for each in made.other_sizes.rebinds]


def test_each_size_has_the_bits_of_a_compile_for_it() -> None:
    program = rows()
    made = cc.compile(program)
    for batch in (4, 1, 9, 2, 4, 9, 130):
        x = drawn(batch, 24)
        (expected,) = cc.compile(program, (x,))(x)
        (found,) = made(x)
        assert same_bits(found, expected), batch
    # A size that was seen is kept; one that has the first's kernels compiles none.
    assert [each.shapes for each in made.other_sizes.rebinds] == [
        ((n, 24),) for n in (1, 9, 2, 130)
    ]
    assert made(drawn(4, 24))[0].shape == (4, 7)


def test_a_sequence_that_grows_takes_programs_of_a_family() -> None:
    program = cached()
    made = cc.compile(program)
    ids = np.array([[3]])
    keys, values = drawn(1, 2, 40, 16), drawn(1, 2, 40, 16) + 1
    for step in range(70):
        logits, more_keys, more_values = made(ids, keys, values)
        if step in (0, 1, 2, 3, 17, 42, 43, 69):
            expected = cc.compile(program, (ids, keys, values))(ids, keys, values)
            for found, wanted in zip((logits, more_keys, more_values), expected, strict=True):
                assert same_bits(found, wanted), step
        keys, values = more_keys, more_values
        ids = np.array([[int(logits.argmax())]])
    # Two sizes are compiled, then a family up to 84 and its extension serve the rest.
    assert how(made) == ["compiled", "compiled", *["family"] * 67]
    assert not made.other_sizes.reasons
    assert sum(each.kernels for each in made.other_sizes.rebinds) == 0


def test_a_family_ends_where_the_model_does() -> None:
    program = cached(longest=47)
    made = cc.compile(program)
    ids, held = np.array([[3]]), drawn(1, 2, 60, 16)
    for length in range(40, 47):
        made(ids, held[:, :, :length], held[:, :, :length])
    assert how(made)[-1] == "family"
    for call in (made, lambda *x: cc.compile(program, x)):
        with pytest.raises(UserError, match=r"index 47 at \[0\] is out of range .*size 47"):
            call(ids, held[:, :, :47], held[:, :, :47])


def test_positions_are_checked_at_every_size() -> None:
    class Taken(nn.Module):
        def forward(self, x, places):
            return x[places]

    length = torch.export.Dim("length", min=2, max=1000)
    x, places = torch.randn(40, 3), torch.zeros(2, dtype=torch.int64)
    made = cc.compile(exported(Taken(), (x, places), ({0: length}, {})))
    for size in range(40, 60):
        rows_of = drawn(size, 3)
        (found,) = made(rows_of, np.array([size - 1, 0]))
        assert np.array_equal(found, rows_of[[size - 1, 0]])
        with pytest.raises(UserError, match=f"index {size} .*size {size}"):
            made(rows_of, np.array([0, size]))
    assert how(made)[-1] == "family"


def test_sizes_0_and_1_are_taken_as_by_torch() -> None:
    """An export without a range begins at 2, and runs below it too."""
    module = seeded(Rows())
    program = exported(module, (torch.randn(4, 24),), ({0: torch.export.Dim.DYNAMIC},))
    made = cc.compile(program)
    for batch in (1, 0):
        x = drawn(batch, 24)
        wanted = program.module()(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(made(x)[0], wanted, atol=1e-6)
    larger = exported(module, (torch.randn(4, 24),), ({0: torch.export.Dim("n", min=3)},))
    with pytest.raises(UserError, match=r"= 2 is not in 3\.\.infinity"):
        cc.compile(larger)(drawn(2, 24))


def test_a_live_module_is_imported_for_each_size() -> None:
    module = seeded(Rows())
    made = cc.compile(module, (drawn(3, 24),))
    x = drawn(5, 24)
    assert np.allclose(made(x)[0], module(torch.from_numpy(x)).detach().numpy(), atol=1e-6)
    assert np.array_equal(made(torch.from_numpy(x))[0], made(x)[0])


def test_an_onnx_model_takes_the_sizes_that_it_leaves_open(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 6])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])
    w = onnx.numpy_helper.from_array(drawn(6, 4), "w")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [w])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    for source in (model, path):
        made = cc.compile(source, (drawn(2, 6),))
        assert np.allclose(made(drawn(11, 6))[0], drawn(11, 6) @ drawn(6, 4), atol=1e-5)
        with pytest.raises(UserError, match="size 7 on axis 1, expected 6"):
            made(drawn(11, 7))
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match="the file has changed"):
        made(drawn(5, 6))


def test_a_jax_function_takes_other_sizes_of_a_tree() -> None:
    jax = pytest.importorskip("jax")

    def model(weights, key, batch, factor):
        drawn = jax.random.uniform(key, (3,))
        return {"y": jax.numpy.tanh(batch["x"] @ weights[0]["w"]) * factor, "keep": drawn}

    weights, key = [{"w": drawn(6, 4)}], jax.random.key(3)
    made = cc.compile(model, (weights, key, {"x": drawn(2, 6)}, 2.0))
    for batch in (3, 4, 5, 6, 1, 0):
        given = weights, key, {"x": drawn(batch, 6)}, 2.0
        found = dict(zip(("keep", "y"), made(*given), strict=True))
        for name, wanted in model(*given).items():
            np.testing.assert_allclose(found[name], wanted, atol=1e-6)
    assert how(made) == ["compiled", "compiled", "family", "family", "compiled", "compiled"]


def test_state_goes_on_from_size_to_size() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total += x.sum(0)
            return x + self.total

    module = Counted()
    made = cc.compile(module, (drawn(2, 3),))
    total = np.zeros(3, np.float32)
    for batch in (2, 5, 2, 7, 8, 9, 5):
        x = np.round(drawn(batch, 3) * 8)
        total = total + x.sum(0)
        assert np.array_equal(made(x)[0], x + total)


def test_sizes_that_the_export_fixed_are_refused_with_what_to_do() -> None:
    made = cc.compile(exported(seeded(Rows()), (torch.randn(4, 24),), ({},)))
    with pytest.raises(UserError, match=r"expected input x to be .*4x24.*got float32 5x24.*export"):
        made(drawn(5, 24))
    limited = cc.compile(rows(most=8))
    with pytest.raises(UserError, match=r"= 9 is not in 1\.\.8"):
        limited(drawn(9, 24))
    with pytest.raises(UserError, match="float64"):
        limited(drawn(5, 24).astype(np.float64))
    assert limited(drawn(8, 24))[0].shape == (8, 7)


def test_with_checks_each_size_is_compiled_and_checked() -> None:
    made = cc.compile(rows(), check=True)
    for batch in (5, 6, 7, 8):
        made(drawn(batch, 24))
    assert set(how(made)) == {"compiled"}


def test_programs_that_were_not_used_for_long_are_dropped(monkeypatch) -> None:
    from core_compiler.driver import other_sizes

    monkeypatch.setattr(other_sizes, "KEPT", 2)
    made = cc.compile(rows())
    for batch in (1, 2, 1, 3, 1, 2):
        made(drawn(batch, 24))
    assert [each.shapes[0][0] for each in made.other_sizes.rebinds] == [1, 2, 3, 2]


# -- numbers as functions of a size ---------------------------------------------------------------


@given(
    st.tuples(*[st.integers(-9, 9)] * 3),
    st.lists(st.integers(0, 500), min_size=5, max_size=8, unique=True),
)
def test_a_polynomial_is_found_from_its_values(coefficients, sizes) -> None:
    a, b, c = coefficients
    values = [a + b * t + c * t * t for t in sizes]
    found = Polynomial.through(sizes[:4], values[:4])
    assert [found.at(t) for t in sizes] == values
    with pytest.raises(NotPolynomial):
        Polynomial.through(sizes[:4], [*values[:3], values[3] + 1])


def test_data_are_fitted_number_by_number() -> None:
    sizes = [4, 5, 9, 12]
    at = fitted(sizes, [{"text": f"take 1x{t}xi64", "limits": [t, 2 * t + 1]} for t in sizes])
    assert at(7) == {"text": "take 1x7xi64", "limits": [7, 15]}
    for values in (
        [{"a": 1}, {"a": 1}, {"b": 1}, {"a": 1}],
        [[1], [1], [1], [1, 2]],
        ["a", "a", "b", "a"],
        ["a007", "a007", "a008", "a007"],
        ["a 4", "a 5", "b 9", "a 12"],
        [0.5, 0.5, 0.5, 1.5],
    ):
        with pytest.raises(NotPolynomial):
            fitted(sizes, values)
