"""What is asked for wrongly, what cannot be written, and how files are written."""

from __future__ import annotations

import tracemalloc
import warnings
from contextlib import suppress

import ml_dtypes
import numpy as np
import onnx
import pytest

from core_compiler.exporters.onnx import OPSET, export, files, write
from core_compiler.frontends.onnx import import_file
from core_compiler.ir import FrontendNode, Module, Op, Origin, Resource, Value, tensor
from core_compiler.ops import Builder, evaluate_block
from core_compiler.support.errors import UserError
from tests.exporters.onnx_runs import agrees, alike, exported, in_runtime, named
from tests.ops.samples.effects import COUNTER, VECTOR, block
from tests.passes.programs import inputs, program

WEIGHT = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096


def dense(b, x):
    """A product with a weight of 16 KiB and a bias of 256 bytes."""
    weight = b.constant(WEIGHT, name="dense.weight")
    return b.add(b.matmul(x, weight), b.expand(b.constant(WEIGHT[0], name="dense.bias"), (3, 64)))


@pytest.fixture
def module() -> Module:
    return program(dense, "3x64xf32")


ENDS = {"inputs": ["x"], "outputs": ["y"]}


# -- structure -------------------------------------------------------------------------------------


def test_a_node_an_op_and_the_names_that_were_given(module):
    graph = export(module, **ENDS, name="dense").graph
    assert graph.name == "dense"
    assert [(n.op_type, list(n.input), list(n.output)) for n in graph.node] == [
        ("MatMul", ["x", "dense.weight"], ["matmul"]),
        ("Add", ["matmul", "dense.bias"], ["y"]),
    ]
    assert [n.name for n in graph.node] == ["net/node_2/MatMul", "net/node_5/Add"]
    assert [i.name for i in graph.initializer] == ["dense.weight", "dense.bias"]
    assert [v.name for v in graph.value_info] == ["matmul"]


def test_names_that_meet_are_told_apart():
    def build(b, x):
        y = b.op("core.exp", (x,), names=("x",))
        return b.op("core.neg", (y,), names=("y",)), b.add(
            x, b.constant(np.ones(3, np.float32), name="z")
        )

    module = program(build, "3xf32")
    model = export(module, inputs=["z"], outputs=["x", "add"])
    onnx.checker.check_model(model, full_check=True)
    made = [name for node in model.graph.node for name in node.output]
    assert len(set(made)) == len(made) and {"x", "add"} <= set(made)
    x = np.array([1, -2, 0.5], np.float32)
    alike(in_runtime(model, [x]), evaluate_block(module.main.body, [x], module.weights))


def test_results_that_no_op_makes_are_results_still():
    """An input, a constant, the same value twice, a broadcast, an input that nobody reads."""

    def build(b, x, y):
        one = b.constant(np.float32(1))
        return x, x, one, b.expand(one, (2, 3)), b.constant(WEIGHT), b.neg(x)

    module = program(build, "2xf32", "3xi64")
    agrees(module, inputs(module))


def test_names_that_are_no_text_do_not_stop_an_export():
    module = program(lambda b, x: b.mul(x, b.constant(WEIGHT, name="w\ud800")), "64x64xf32")
    (op, *rest) = module.main.body.ops
    node = FrontendNode("n\udfff", "k", "f\ud801.py", 3, "s\ud802")
    body = module.main.body.with_(ops=(op, *(r.with_(origin=Origin.root(node)) for r in rest)))
    graph = exported(module.with_main(body)).graph
    assert graph.initializer[0].name == "w?" and graph.node[0].name == "s?/n?/Mul"
    assert graph.node[0].doc_string.splitlines()[2] == "f?.py:3"


def test_equal_weights_are_stored_once():
    def build(b, x):
        return b.matmul(b.matmul(x, b.constant(WEIGHT, name="tied")), b.constant(WEIGHT.copy()))

    graph = export(program(build, "3x64xf32"), **ENDS).graph
    assert [i.name for i in graph.initializer] == ["tied"]
    assert {n.input[1] for n in graph.node} == {"tied"}


def test_a_broadcast_is_shaped_once_and_expanded_only_where_it_must_be():
    def build(b, x, y):
        wide = b.broadcast(y, shape=(2, 3, 4), dims=(1,))
        summed = b.add(b.mul(x, wide), wide)
        return summed, b.exp(b.neg(wide)), b.concat(wide, x, axis=0)

    module = program(build, "2x3x4xf32", "3xf32")
    kinds = [n.op_type for n in exported(module).graph.node]
    assert kinds == ["Reshape", "Mul", "Add", "Neg", "Exp", "Expand", "Concat", "Expand"]
    agrees(module, inputs(module))


def test_guards_are_there_where_they_are_asked_for():
    def build(b, x, i):
        pooled = b.max_pool(x, window=(2,), strides=(2,), low=(0,), high=(0,), dilations=(1,))
        return b.take(pooled, i, axis=2), b.argmax(x, axis=1), b.cast(x, dtype="i32")

    module = program(build, "1x2x6xf32", "4xi64")
    plain = [n.op_type for n in exported(module, guards=False).graph.node]
    assert plain == ["MaxPool", "Gather", "ArgMax", "Cast"]
    kept = [n.op_type for n in exported(module).graph.node]
    assert {"IsNaN", "Clip", "Where"} <= set(kept)
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(1, 2, 6)
    agrees(module, [x, np.array([0, -7, 9, 2])])


def test_divisions_of_integers_are_always_guarded():
    """A division by zero is an error of onnxruntime, or ends its process."""
    module = program(lambda b, i: b.div(i, i), "4xi64")
    agrees(module, [np.array([0, 2, -1, -(2**63)])], guards=False)


def test_what_is_dropped_on_purpose_is_dropped_without_guards():
    """The elements that are true, in front: how sizes that depend on data are made."""

    def build(b, x, held):
        each = b.iota(shape=(6,), dtype="i64")
        one, none = (b.scalar_like(n, each) for n in (1, 6))
        place = b.sub(b.cumsum(b.cast(held, dtype="i64"), axis=0), b.expand(one, (6,)))
        place = b.select(held, place, b.expand(none, (6,)))
        return b.scatter_along(b.mul(x, x), place, x, axis=0, mode="set")

    module = program(build, "6xf32", "6xi1")
    x = np.arange(6, dtype=np.float32)
    for held in ([0, 1, 1, 0, 0, 1], [0] * 6, [1] * 6):
        agrees(module, [x, np.array(held, bool)], guards=False)


def test_scatters_of_which_nothing_is_known_are_as_they_are_without_guards():
    module = program(lambda b, x, i: b.scatter_along(x, i, x, axis=0, mode="set"), "6xf32", "6xi64")
    plain = [n.op_type for n in exported(module, guards=False).graph.node]
    assert plain == ["ScatterElements"]


def test_known_places_need_no_guard():
    def build(b, x):
        places = b.mod(
            b.iota(shape=(7,), dtype="i64"), b.scalar_like(3, b.iota(shape=(7,), dtype="i64"))
        )
        return b.take(x, places, axis=0), b.take(x, b.constant(np.array([2, 0])), axis=0)

    nodes = exported(program(build, "3x4xf32")).graph.node
    assert "Clip" not in [n.op_type for n in nodes]


# -- control flow ----------------------------------------------------------------------------------


def test_loops_and_branches_see_what_is_around_them():
    """y = x; while i < 4: y = y + 10 if i is even else y * x; and a constant result of a branch."""
    x = Value(tensor((4,), "f32"), "x")

    def step(b, i, y):
        even = b.eq(b.mod(i, b.scalar_like(2, i)), b.scalar_like(0, i))
        then = block([], lambda c: (c.add(y, c.scalar_like(10, y)), c.scalar_like(3, y)))
        other = block([], lambda c: (c.mul(y, x), y))
        y, z = b.if_(even, regions=(then, other))
        return b.add(i, b.scalar_like(1, i)), b.add(y, z)

    go = block([COUNTER, VECTOR], lambda b, i, y: b.lt(i, b.scalar_like(4, i)))
    module = program(lambda b, x: x, "4xf32")
    builder = Builder(module.weights)
    _, result = builder.while_(
        builder.constant(0, "i32"), x, regions=(go, block([COUNTER, VECTOR], step))
    )
    body = module.main.body.with_(arguments=(x,), ops=tuple(builder.ops), outputs=(result, x))
    module = module.with_main(body)
    arrays = [np.array([1, 2, -3, 0.5], np.float32)]
    agrees(module, arrays)
    kinds = [n.op_type for n in exported(module).graph.node]
    assert "Loop" in kinds and "If" not in kinds


# -- refusals --------------------------------------------------------------------------------------


def test_all_that_has_no_word_is_named_at_once():
    def build(b, x, seed):
        noise = b.random_uniform(seed, shape=(3,), stream=0)
        more = b.random_uniform(seed, shape=(3,), stream=1)
        bits = b.random_bits(seed, shape=(2,), stream=2)
        small = b.cast(x, dtype="f8E3M4")
        return b.add(noise, more), bits, b.cast(small, dtype="f32")

    with pytest.raises(UserError) as refused:
        export(program(build, "3xf32", "ui64"), inputs=["x", "seed"], outputs=["a", "b", "c"])
    assert str(refused.value) == (
        "export: 3 kinds of op not supported by ONNX (opset 26): core.random_uniform (2 times; "
        "ONNX specifies no random number generator; model.py:1, model.py:2); core.random_bits "
        "(once; ONNX specifies no random number generator; model.py:3); core.cast (2 times; f8E3M4 "
        "is not an ONNX dtype; model.py:4, model.py:6); replace them in the model, or export an "
        "earlier stage"
    )


BAD = [
    ({"inputs": ["x", "z"], "outputs": ["y"]}, "expected 1 names for the inputs of main, got 2"),
    ({"inputs": ["x"], "outputs": []}, "expected 1 names for the outputs of main, got 0"),
    ({"inputs": [""], "outputs": ["y"]}, "invalid name '' for one of the inputs"),
    ({"inputs": ["x\ud800"], "outputs": ["y"]}, "invalid name 'x\\ud800' for one of the"),
    ({"inputs": [3], "outputs": ["y"]}, "invalid name 3 for one of the inputs"),
    ({"inputs": "x", "outputs": ["y"]}, "expected inputs to be a list"),
    ({"inputs": ["x"], "outputs": ["x"]}, "'x' names both an input and an output"),
    ({**ENDS, "opset": 16}, "unsupported opset 16; choose an opset from 17 to "),
    ({**ENDS, "opset": 99}, "unsupported opset 99"),
    ({**ENDS, "opset": "26"}, "unsupported opset '26'"),
]


@pytest.mark.parametrize(("options", "says"), BAD, ids=[b[1][:30] for b in BAD])
def test_bad_requests_are_told(module, options, says):
    with pytest.raises(UserError) as refused:
        export(module, **options)
    assert says in f"{refused.value.what}; {refused.value.fix}"


def test_sizes_must_be_numbers():
    module = program(lambda b, x: b.neg(x), "2xf32")
    x = Value(tensor(("batch", 2), "f32"))
    builder = Builder()
    body = module.main.body.with_(arguments=(x,), outputs=(builder.neg(x),), ops=builder.ops)
    with pytest.raises(UserError, match="not supported: batch; bind them to numbers first"):
        export(module.with_main(body), **ENDS)


def test_a_stage_below_the_tensor_level_is_refused(finished):
    below = next(s for s in finished.stages if s.name == "outline_kernels")
    with pytest.raises(UserError, match=r"below the tensor level: it contains target\.launch"):
        export(below.module, inputs=["x"], outputs=["y", "z"])
    before = finished.stages[below.index - 1].module
    assert export(before, inputs=["x"], outputs=["y", "z"]).graph.node


# -- files -----------------------------------------------------------------------------------------


def test_a_small_model_is_one_file(module, tmp_path):
    path = tmp_path / "model.onnx"
    assert write(module, path, **ENDS) == [path]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx"]
    assert onnx.load(path) == export(module, **ENDS)


def test_weights_beside_the_model(module, tmp_path):
    path = tmp_path / "model.onnx"
    assert write(module, str(path), **ENDS, largest=1000) == [path, tmp_path / "model.onnx.data"]
    onnx.checker.check_model(str(path), full_check=True)
    held = {t.name: t for t in onnx.load(path, load_external_data=False).graph.initializer}
    where = {e.key: e.value for e in held["dense.weight"].external_data}
    assert where == {"location": "model.onnx.data", "offset": "0", "length": str(WEIGHT.nbytes)}
    assert held["dense.bias"].raw_data == WEIGHT[0].tobytes()  # too small to lie apart
    whole = onnx.load(path).graph.initializer
    assert [t.raw_data for t in whole] == [WEIGHT.tobytes(), WEIGHT[0].tobytes()]
    back = import_file(path).module
    x = inputs(module)
    alike(
        evaluate_block(back.main.body, x, back.weights),
        evaluate_block(module.main.body, x, module.weights),
        0.0,
    )


def test_weights_of_every_dtype_begin_on_pages(tmp_path):
    kinds = (
        np.float64,
        np.int8,
        np.bool_,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e5m2,
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.int2,
        ml_dtypes.float4_e2m1fn,
    )
    arrays = [(np.arange(5001).reshape(3, -1) % 2).astype(kind) for kind in kinds]
    module = program(lambda b, x: (*(b.constant(a) for a in arrays), x), "1xf32")
    ends = {"inputs": ["x"], "outputs": [*(f"y{i}" for i in range(len(kinds))), "z"]}
    (path, _) = write(module, tmp_path / "m.onnx", **ends, largest=0)
    stored = onnx.load(path, load_external_data=False).graph.initializer
    offsets = [int(e.value) for t in stored for e in t.external_data if e.key == "offset"]
    assert len(offsets) == 5 and all(o % 4096 == 0 for o in offsets)
    for tensor_, array in zip(onnx.load(path).graph.initializer, arrays, strict=True):
        found = onnx.numpy_helper.to_array(tensor_)
        np.testing.assert_array_equal(found.astype(np.float32), array.astype(np.float32))


def test_a_model_beyond_protobuf_goes_beside_by_itself(module, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 8192)
    with pytest.raises(UserError, match="too many for protobuf; write it to a file"):
        export(module, **ENDS)
    assert len(write(module, tmp_path / "model.onnx", **ENDS)) == 2
    assert len(write(module, tmp_path / "model.onnx", **ENDS, largest=1 << 40)) == 2


def test_weights_are_not_copied_as_a_whole(tmp_path):
    """Of a mapped weight no more than a part is in memory while it is written."""
    stored = tmp_path / "weight.npy"
    np.save(stored, np.zeros((1 << 24,), np.float32))
    mapped = np.load(stored, mmap_mode="r")
    module = program(lambda b, x: b.add(x, b.constant(WEIGHT[0, :1])), "1xf32")
    digest = "0" * 64
    module.weights.put(digest, mapped)
    big = Value(tensor(mapped.shape, "f32"), "big")
    op = Op("core.constant", (), (big,), {"value": Resource(big.type, digest)})
    body = module.main.body
    module = module.with_main(body.with_(ops=(op, *body.ops), outputs=(big, *body.outputs)))
    export(program(dense, "3x64xf32"), **ENDS)  # imports what is imported once
    tracemalloc.start()
    write(module, tmp_path / "m.onnx", inputs=["x"], outputs=["big", "y"], largest=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "m.onnx.data").stat().st_size == mapped.nbytes
    assert peak < mapped.nbytes / 4


def test_a_failure_leaves_what_was_there(module, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    write(module, path, **ENDS, largest=0)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(stream, array):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_stream", full)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        write(module, path, **ENDS, largest=0)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_what_has_no_large_weight_is_one_file_whatever_is_asked(tmp_path):
    path = tmp_path / "model.onnx"
    module = program(lambda b, x: b.add(x, b.constant(WEIGHT[0])), "64xf32")
    assert write(module, path, **ENDS, largest=0) == [path]
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_a_folder_that_is_not_there(module, tmp_path):
    with pytest.raises(UserError, match="cannot be written: No such file or directory"):
        write(module, tmp_path / "none" / "model.onnx", **ENDS)


def test_the_default_opset_is_one_that_onnxruntime_runs(module):
    """A later version of it may run newer ones: a warning says that the default can be raised."""
    agrees(module, inputs(module), OPSET)
    with suppress(Exception):  # whatever it says of a model that is too new
        in_runtime(export(module, **named(module), opset=OPSET + 1), inputs(module))
        warnings.warn(f"onnxruntime runs opset {OPSET + 1}: the default is {OPSET}", stacklevel=1)
