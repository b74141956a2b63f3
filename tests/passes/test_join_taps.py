"""Convolutions and their weight gradients: channels as pixels, the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.ops import evaluate_block
from core_compiler.passes import join_taps
from core_compiler.passes.join_taps import JoinTaps
from tests.passes import specs
from tests.passes.programs import program

#: Picture, kernel, strides, low, high, dilations.
WINDOWS = {
    "7x7, stride 2": ((2, 3, 20, 19), (7, 7), (2, 2), (3, 3), (3, 2), (1, 1)),
    "5x5 of four": ((3, 4, 9, 8), (5, 5), (1, 1), (2, 2), (2, 2), (1, 1)),
    "patches": ((1, 3, 16, 24), (8, 8), (8, 8), (0, 0), (0, 0), (1, 1)),
    "rows dilated": ((1, 2, 17, 11), (3, 9), (1, 1), (0, 4), (1, 0), (3, 1)),
    "sound": ((2, 2, 40), (11,), (3,), (5,), (4,), (1,)),
}
OTHER = {
    "many channels": ((2, 40, 20, 18), (3, 3), (2, 1), (1, 1), (1, 0), (1, 1)),
    "many channels of few pixels": ((1, 40, 3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "short rows": ((1, 3, 6, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "single taps": ((1, 8, 9, 9), (7, 1), (1, 1), (0, 0), (0, 0), (1, 1)),
}


def _module(name: str, dtype: str = "f32", outputs: int = 5, op: str = "gradient"):
    picture, kernel, strides, low, high, dilations = (WINDOWS | OTHER)[name]
    sizes = [
        (n + a + z - d * (k - 1) - 1) // s + 1
        for n, a, z, d, k, s in zip(picture[2:], low, high, dilations, kernel, strides, strict=True)
    ]
    window = {"strides": strides, "low": low, "high": high, "dilations": dilations, "groups": 1}
    given = (picture[0], outputs, *sizes) if op == "gradient" else (outputs, picture[1], *kernel)

    def build(b, x, other):
        if op == "gradient":
            return b.conv_weight_gradient(x, other, kernel=kernel, **window)
        return b.conv(x, other, **window)

    module = program(build, *(f"{'x'.join(map(str, s))}x{dtype}" for s in (picture, given)))
    random = np.random.default_rng(1)
    kind = module.main.arguments[0].type.dtype.numpy
    return module, [(3 * random.normal(size=s)).astype(kind) for s in (picture, given)]


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """The windows of these pictures read few elements."""
    monkeypatch.setattr(join_taps, "READ", 1)


CASES = [(n, o) for n in WINDOWS for o in ("gradient", "conv")] + [("many channels", "gradient")]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "op"), CASES)
def test_the_same_products_are_summed_in_the_same_order(name, dtype, op):
    module, arrays = _module(name, dtype, op=op)
    after, rewrites = specs.apply(JoinTaps(), module)
    assert len(rewrites) == 1
    (made,) = (o for o in after.main.body.ops if o.kind.startswith("core.conv"))
    assert made.operands[0].type.shape[1] == 1
    before, joined = (evaluate_block(m.main.body, arrays)[0] for m in (module, after))
    assert joined.tobytes() == before.tobytes()


@pytest.mark.parametrize(
    ("name", "op"), [c for c in CASES if c[0] in ("7x7, stride 2", "sound", "many channels")]
)
def test_programs_have_the_bits_of_the_op(name, op):
    module, arrays = _module(name, outputs=33, op=op)
    expected = evaluate_block(module.main.body, arrays)[0].tobytes()
    for threads in (1, 2):
        compiled = compilation.start(module, options=compilation.Options(threads=threads))
        assert compiled.finish()(*arrays)[0].tobytes() == expected


STAY = [(n, "gradient") for n in OTHER if n != "many channels"]
STAY += [("single taps", "conv"), ("many channels", "conv")]


@pytest.mark.parametrize(("name", "op"), STAY)
def test_others_stay(name, op):
    assert not specs.apply(JoinTaps(), _module(name, op=op)[0])[1]


def test_rows_of_nine_are_copied_at_once():
    assert len(specs.apply(JoinTaps(), _module("short rows", op="conv")[0])[1]) == 1


def test_small_pictures_stay(monkeypatch):
    monkeypatch.undo()
    assert not specs.apply(JoinTaps(), _module("7x7, stride 2", op="conv")[0])[1]


@pytest.mark.parametrize("name", ["7x7, stride 2", "5x5 of four", "rows dilated", "sound"])
def test_bytes_are_summed_a_word_of_taps_at_a_time(name):
    picture, kernel, strides, low, high, dilations = WINDOWS[name]
    window = {"strides": strides, "low": low, "high": high, "dilations": dilations, "groups": 1}

    def build(b, x, w):
        zero = b.expand(b.constant(7, "i32"), x.type.shape)
        return b.conv(b.sub(b.cast(x, dtype="i32"), zero), b.cast(w, dtype="i32"), **window)

    shapes = (picture, (33, picture[1], *kernel))
    kinds = zip(shapes, ("ui8", "i8"), strict=True)
    module = program(build, *(f"{'x'.join(map(str, s))}x{kind}" for s, kind in kinds))
    random = np.random.default_rng(2)
    arrays = [
        random.integers(0, 256, shapes[0], np.uint8),
        random.integers(-128, 128, shapes[1], np.int8),
    ]
    expected = evaluate_block(module.main.body, arrays)[0].tobytes()
    for threads in (1, 2):
        compiled = compilation.start(module, options=compilation.Options(threads=threads)).finish()
        assert compiled(*arrays)[0].tobytes() == expected
    sources = [k.source for k in compiled.kernels.values()]
    assert any("dot4" in source for source in sources)
