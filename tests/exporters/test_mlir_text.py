"""The exported text: what it looks like, names, locations, weights, bad input."""

from __future__ import annotations

import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from core_compiler.driver.compilation import Options, start
from core_compiler.exporters.mlir import export, write
from core_compiler.ir import (
    Block,
    FrontendNode,
    Function,
    Module,
    Origin,
    TensorType,
    Value,
    WeightStore,
    tensor,
)
from core_compiler.ops import Builder, evaluate_block
from core_compiler.support.errors import UserError
from tests.exporters.iree import (
    Loaded,
    canonical,
    compile_file,
    differing,
    loaded,
    module_of,
    refusal,
    text_of,
)
from tests.ops.samples.effects import block
from tests.passes.programs import program
from tests.slow import slow_but

GOLDEN = Path(__file__).parent / "golden"
DIALECTS = ("linalg", "tosa")
both = pytest.mark.parametrize("dialect", DIALECTS)


def function(name: str, types, body: Callable, store: WeightStore | None = None) -> Function:
    """A function of arguments of these (shape, dtype, name) types."""
    arguments = tuple(Value(tensor(shape, kind), label) for shape, kind, label in types)
    builder = Builder(store)
    outputs = body(builder, *arguments)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return Function(name, Block(arguments, tuple(builder.ops), outputs))


def exported(main: Function, dialect: str, store: WeightStore | None = None, **options) -> str:
    return text_of(Module({"main": main}, store or WeightStore()), dialect, **options)


# -- golden text -----------------------------------------------------------------------------------


def _handful() -> Module:
    """Functions that show how each sort of op is written."""

    def choice(b, p, x):
        return b.if_(
            p,
            x,
            regions=(
                block([((4,), "f32")], lambda c, v: c.add(v, v)),
                block([((4,), "f32")], lambda c, v: c.neg(v)),
            ),
        )

    window = {"strides": (2, 2), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)}
    rows: tuple = (
        ("biased", [((2, 3), "f32", "x"), ((3,), "f32", "bias")],
         lambda b, x, c: b.relu(b.add(x, b.expand(c, (2, 3))))),
        ("half_exp", [((4,), "f16", "x")], lambda b, x: b.exp(x)),
        ("to_bytes", [((4,), "f32", "x")], lambda b, x: b.cast(x, dtype="ui8")),
        ("quotient", [((4,), "i32", "a"), ((4,), "i32", "b")], lambda b, x, y: b.div(x, y)),
        ("product", [((2, 3, 4), "bf16", "a"), ((2, 4, 5), "bf16", "b")],
         lambda b, x, y: b.matmul(x, y)),
        ("image", [((1, 3, 7, 7), "f32", "x"), ((4, 3, 3, 3), "f32", "w")],
         lambda b, x, w: b.conv(x, w, **window)),
        ("pooled", [((1, 3, 7, 7), "f32", "x")],
         lambda b, x: b.max_pool(x, window=(3, 3), **window)),
        ("summed", [((2, 3, 4), "f32", "x")], lambda b, x: b.reduce_sum(x, axes=(0, 2))),
        ("rows", [((9, 2), "f32", "x"), ((4,), "i64", "at")], lambda b, x, i: b.take(x, i)),
        ("spread", [((2, 3), "f32", "x"), ((), "f32", "value")],
         lambda b, x, v: b.pad(x, v, low=(0, 1), high=(2, -1), interior=(0, 1))),
        ("either", [((), "i1", "p"), ((4,), "f32", "x")], choice),
    )  # fmt: skip
    return Module({name: function(name, types, body) for name, types, body in rows})


@both
def test_golden(dialect, tmp_path):
    text = text_of(_handful(), dialect)
    path = GOLDEN / f"{dialect}.mlir"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert refusal(path) == ""


@both
def test_what_nobody_reads_is_left_out(dialect):
    def body(b, x):
        b.exp(x)
        return b.abs(x)

    text = exported(function("main", [((3,), "f32", "x")], body), dialect)
    assert "exp" not in text and "abs" in text


def test_numbers_stand_in_the_bodies_that_read_them():
    """No tensor of a constant, and what is broadcast is read where it was."""

    def body(b, x, bias):
        return b.mul(b.add(x, b.expand(bias, (2, 3))), b.scalar_like(0.5, x))

    main = function("main", [((2, 3), "f32", "x"), ((3,), "f32", "bias")], body)
    text = exported(main, "linalg")
    assert "linalg.broadcast" not in text and "dense" not in text
    assert "affine_map<(d0, d1) -> (d1)>" in text
    text = exported(main, "tosa")
    assert "tosa.tile" not in text
    assert re.search(r'"tosa.add"\(%in0, %\d\) : \(tensor<2x3xf32>, tensor<1x3xf32>\)', text)


# -- names and locations ---------------------------------------------------------------------------

_ODD = ("input.1", "a/b", "été", "1x", "x y", 'q"uote', "x", "x", "")


@both
def test_any_name_is_one(dialect, tmp_path):
    main = function(
        "main",
        [((2,), "f32", f"v{i}") for i, _ in enumerate(_ODD)],
        lambda b, *xs: tuple(b.neg(x) for x in xs),
    )
    others = {name: main.with_(name=name) for name in ("my function", "été")}
    module = Module({"main": main, **others})
    path = tmp_path / "odd.mlir"
    write(module, path, dialect=dialect, inputs=_ODD, outputs=_ODD)
    assert refusal(path) == ""
    printed = canonical(path.read_text())
    assert re.findall(r'ml_program.identifier = "([^"]*)"', printed)[:4] == [
        "input.1",
        "a/b",
        "\\C3\\A9t\\C3\\A9",
        "1x",
    ]
    assert 'func.func @"my function"' in printed and r'func.func @"\C3\A9t\C3\A9"' in printed


def _node(name: str, line: int) -> Origin:
    return Origin.root(FrontendNode(name, "linear", "model.py", line, "encoder/layer.0"))


@both
def test_locations_name_the_models_lines(dialect):
    x = Value(tensor((3,), "f32"), "x")
    first, second = Builder(origin=_node("fc", 12)), Builder(origin=_node("act", 13))
    a = first.exp(x)
    b = second.neg(a)
    fused = Builder(origin=Origin.derived("merge them", (_node("fc", 12), _node("act", 13))))
    c = fused.abs(b)
    made = Builder(origin=Origin.synthetic("pad rows", "the kernel takes whole rows"))
    d = made.floor(c)
    ops = (*first.ops, *second.ops, *fused.ops, *made.ops)
    text = text_of(module_of(Block((x,), ops, (d,))), dialect)
    printed = canonical(text, "--mlir-print-debuginfo")
    for shown in (text, printed):
        assert '("encoder/layer.0/fc"(' in shown
        assert '"model.py":12:0' in shown
        assert 'fused<"merge them">[' in shown
        assert '"the kernel takes whole rows"' in shown


def test_a_composite_keeps_its_place():
    builder = Builder(origin=_node("act", 7))
    x = Value(tensor((3,), "f32"), "x")
    y = builder.gelu(x)
    text = text_of(module_of(Block((x,), tuple(builder.ops), (y,))), "tosa")
    ops = [line for line in text.splitlines() if '= "tosa.' in line and "const" not in line]
    assert ops and all(line.endswith("loc(#loc1)") for line in ops)


@both
def test_regions_see_their_arguments_only_in_tosa(dialect):
    """A loop that reads a value, a number and a large constant from around it."""
    store = WeightStore()

    def body(b, x, bound):
        step = b.constant(np.arange(100, dtype=np.float32))
        return b.op(
            "core.while",
            (x,),
            regions=(
                block([((100,), "f32")], lambda c, v: c.lt(c.reduce_sum(v, axes=(0,)), bound)),
                block([((100,), "f32")], lambda c, v: c.add(c.add(v, step), c.scalar_like(1, v))),
            ),
        )

    main = function("main", [((100,), "f32", "x"), ((), "f32", "bound")], body, store)
    text = exported(main, dialect, store, weights="arguments")
    inner = [line for line in text.splitlines() if line.startswith(" " * 6)]
    outside = {"%in0", "%in1", "%w_"}
    reads = any(name in line for name in outside for line in inner)
    assert reads == (dialect == "linalg")


# -- weights ---------------------------------------------------------------------------------------

_STORED = (
    np.linspace(-1, 1, 100, dtype=np.float32),
    np.linspace(-1, 1, 300).astype(ml_dtypes.bfloat16),
    np.arange(-150, 150, dtype=np.int64),
    np.arange(300).astype(np.uint8),
    np.arange(300) % 3 == 0,
)


def _with_weights() -> tuple[Module, Block]:
    store = WeightStore()
    builder = Builder(store)
    outputs = []
    for number, array in enumerate(_STORED):
        held = builder.constant(array, name=f"net.{number}/weight")
        x = Value(held.type, "x") if number == 0 else None
        if x is not None:
            argument = x
            outputs.append(builder.add(x, held))
        else:
            outputs.append(builder.reverse(held, axes=(0,)))
    body = Block((argument,), tuple(builder.ops), tuple(outputs))
    return Module({"main": Function("main", body)}, store), body


@pytest.mark.slow
@pytest.mark.parametrize("dialect", slow_but(("linalg",), DIALECTS))
def test_weights_are_embedded_bit_for_bit(dialect, tmp_path):
    module, body = _with_weights()
    x = np.ones(100, np.float32)
    types = [v.type for v in body.outputs]
    got = loaded(module, dialect, tmp_path)("main", [x], types)
    for g, w in zip(got, evaluate_block(body, [x], module.weights), strict=True):
        assert differing(g, w, 0.0) == ""


@pytest.mark.parametrize("dialect", slow_but(("tosa",), DIALECTS))
def test_weights_are_arguments_beside_the_file(dialect, tmp_path):
    module, body = _with_weights()
    path = tmp_path / "model.mlir"
    files = write(
        module, path, dialect=dialect, inputs=["x"], outputs=list("abcde"), weights="arguments"
    )
    assert files == [path, tmp_path / "model.npz"]
    assert "dense_resource" not in path.read_text()
    with np.load(files[1]) as archive:
        names = list(archive)
        held = [archive[name] for name in names]
    assert names == [f"net.{i}/weight" for i in range(len(_STORED))]
    given = [a.view(w.dtype) for a, w in zip(held, _STORED, strict=True)]
    for array, wanted in zip(given, _STORED, strict=True):
        np.testing.assert_array_equal(array, wanted)
    compiled, problem = compile_file(path, dialect)
    assert compiled is not None, problem
    x = np.ones(100, np.float32)
    got = Loaded(compiled)("main", [x, *given], [v.type for v in body.outputs])
    for g, w in zip(got, evaluate_block(body, [x], module.weights), strict=True):
        assert differing(g, w, 0.0) == ""


@both
def test_weights_beside_the_file_have_names_that_an_archive_can_hold(dialect, tmp_path):
    store, names = WeightStore(), ("w", "w.npy", "a\0b", "a\ud800b")

    def build(b, x):
        for number, name in enumerate(names):
            x = b.add(x, b.constant(np.full(100, number, np.float32), name=name))
        return x

    module = Module({"main": function("main", [((100,), "f32", "x")], build, store)}, store)
    _, beside = write(
        module,
        tmp_path / "m.mlir",
        dialect=dialect,
        inputs=["x"],
        outputs=["y"],
        weights="arguments",
    )
    with np.load(beside) as archive:
        assert {n: int(archive[n][0]) for n in archive} == {"w": 0, "w_2": 1, "a?b": 2, "a?b_2": 3}


@pytest.mark.sampled(4)
@both
@pytest.mark.parametrize("weights", ["embedded", "arguments"])
def test_memory_does_not_grow_with_the_weights(dialect, weights, tmp_path):
    store = WeightStore()
    big = np.zeros(16 << 20, np.float32)  # 64 MB
    main = function(
        "main", [(big.shape, "f32", "x")], lambda b, x: b.add(x, b.constant(big)), store
    )
    module = Module({"main": main}, store)
    tracemalloc.start()
    files = write(
        module, tmp_path / "big.mlir", dialect=dialect, inputs=["x"], outputs=["y"], weights=weights
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(f.stat().st_size for f in files) >= big.nbytes
    assert peak < 24 << 20


# -- stages ----------------------------------------------------------------------------------------


def _small_network() -> Module:
    store = WeightStore()
    random = np.random.default_rng(0)

    def body(b, x):
        w = b.constant(random.normal(size=(8, 3, 3, 3)).astype(np.float32), name="w")
        x = b.conv(x, w, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1))
        x = b.max_pool(
            b.gelu(x), window=(2, 2), strides=(2, 2), low=(0, 0), high=(0, 0), dilations=(1, 1)
        )
        x = b.reshape(x, shape=(2, 8 * 16))
        v = b.constant(random.normal(size=(8 * 16, 5)).astype(np.float32), name="v")
        return b.softmax(b.linear(x, v), axis=1)

    main = function("main", [((2, 3, 8, 8), "f32", "pixels")], body, store)
    return Module({"main": main}, store)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", slow_but(("linalg",), DIALECTS))
def test_every_tensor_stage_of_a_compile_exports(dialect, tmp_path):
    """Up to the launches of kernels, which hold what they compute; then there is a clear no."""
    module = _small_network()
    compilation = start(module, "cpu", Options(threads=1))
    stages = [compilation.stages[0]]
    while stages[-1].module.main.level == "tensor":
        stages.append(compilation.step())
    *before, bufferized = stages
    assert [s.name for s in before][-1] == "outline_kernels"
    for stage in before:
        path = tmp_path / f"{stage.index}.mlir"
        write(stage.module, path, dialect=dialect, inputs=["pixels"], outputs=["shares"])
        assert refusal(path) == "", stage.name
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    (want,) = evaluate_block(module.main.body, [x], module.weights)
    (got,) = loaded(before[-1].module, dialect, tmp_path)("main", [x], [tensor((2, 5), "f32")])
    assert differing(got, want, 8e-6) == ""
    with pytest.raises(UserError, match="export an earlier stage"):
        export(bufferized.module, dialect=dialect, inputs=["pixels"], outputs=["shares"])


# -- bad input -------------------------------------------------------------------------------------


def _one() -> Module:
    return Module({"main": function("main", [((2,), "f32", "x")], lambda b, x: b.neg(x))})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dialect": "linalgs"}, "unknown dialect 'linalgs'; did you mean linalg?"),
        ({"dialect": "spirv"}, "choose one of tosa, linalg"),
        ({"weights": "outside"}, "invalid value 'outside' for weights; choose embedded or"),
        ({"inputs": ["x", "y"]}, "function main: expected 1 names for the inputs, got 2"),
        ({"outputs": []}, "function main: expected 1 names for the outputs, got 0"),
    ],
)
def test_bad_options(changed, says):
    options = {"dialect": "tosa", "inputs": ["x"], "outputs": ["y"]} | changed
    with pytest.raises(UserError) as caught:
        export(_one(), **options)
    assert says in str(caught.value)


def test_symbolic_sizes_are_named():
    x = Value(TensorType(("batch", 3), tensor((), "f32").dtype), "x")
    builder = Builder()
    y = builder.neg(x)
    with pytest.raises(UserError, match=r"symbolic sizes are not supported: batch; .*--size"):
        export(
            module_of(Block((x,), tuple(builder.ops), (y,))),
            dialect="linalg",
            inputs=["x"],
            outputs=["y"],
        )


def test_all_ops_without_a_word_are_named_at_once():
    x = Value(tensor((3,), "f32"), "x")
    ops, value = [], x
    for line in (4, 9):
        builder = Builder(origin=_node("bits", line))
        value = builder.bitcast(builder.bitcast(value, dtype="i32"), dtype="f32")
        ops += builder.ops
    builder = Builder(origin=_node("wide", 11))
    value = builder.exp(builder.cast(value, dtype="f64"))
    module = module_of(Block((x,), (*ops, *builder.ops), (value,)))
    with pytest.raises(UserError) as caught:
        export(module, dialect="tosa", inputs=["x"], outputs=["y"])
    assert str(caught.value) == (
        "export to MLIR: 3 ops not supported by TOSA: "
        "core.bitcast (the bits of floats; 4 times; model.py:4, model.py:9), "
        "core.cast (f64 not supported; once; model.py:11), "
        "core.exp (f64 not supported; once; model.py:11); "
        "export to linalg, or replace them in the model"
    )
    export(module, dialect="linalg", inputs=["x"], outputs=["y"])


def test_a_file_stays_where_writing_fails(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text("before")
    builder = Builder()
    x = Value(tensor((3,), "f64"), "x")
    module = module_of(Block((x,), tuple(builder.ops), (builder.neg(x),)))
    module = module_of(Block((x,), tuple(builder.ops), module.main.outputs))
    with pytest.raises(UserError):
        write(module, path, dialect="tosa", inputs=["x"], outputs=["y"])
    assert path.read_text() == "before"
    with pytest.raises(UserError, match="cannot be written"):
        write(_one(), tmp_path / "none" / "m.mlir", dialect="tosa", inputs=["x"], outputs=["y"])
    assert [p.name for p in tmp_path.iterdir()] == ["model.mlir"]


def test_a_result_without_elements_has_no_word_in_tosa():
    nothing = np.zeros((0, 3), np.float32)
    module = program(lambda b, x: (b.constant(nothing), b.neg(x)), "2x3xf32")
    with pytest.raises(UserError, match=r"by TOSA: core\.constant \(tensors without elements"):
        export(module, dialect="tosa", inputs=["x"], outputs=["y", "z"])
    joined = program(lambda b, x: b.concat(x, b.constant(nothing), axis=0), "2x3xf32")
    assert "2x3xf32" in export(joined, dialect="tosa", inputs=["x"], outputs=["y"])
