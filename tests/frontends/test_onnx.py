"""The ONNX frontend: files that nobody has vouched for, symbolic sizes, control flow, refusals."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from core_compiler.frontends.onnx import import_file, import_proto
from core_compiler.support.errors import UserError
from tests.frontends.onnx_models import F, I, agrees, execute, model_of, one_node
from tests.ops import philox


def _small():
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    shape = numpy_helper.from_array(np.array([2, -1], np.int64), "shape")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="/first/MatMul"),
        helper.make_node("Relu", ["h"], ["r"], name="/first/Relu"),
        helper.make_node("Reshape", ["r", "shape"], ["y"], name="/Reshape"),
    ]
    return model_of(nodes, [("x", F, [2, 3])], [("y", F, [2, 4])], [weight, shape])


def _agrees(proto, **arrays):
    """Means what onnxruntime computes; what was imported."""
    agrees(proto, arrays)
    return import_proto(proto, inputs=arrays)


def test_a_small_model_means_what_onnxruntime_computes():
    _agrees(_small(), x=np.arange(6, dtype=np.float32).reshape(2, 3) - 3)


# -- files --


def _written(tmp_path: Path, model) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def _refused(tmp_path, model, match):
    with pytest.raises(UserError, match=match) as caught:
        import_file(_written(tmp_path, model))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="file not found"):
        import_file(tmp_path / "none.onnx")


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(tmp_path, share):
    data = _small().SerializeToString()
    _refused(
        tmp_path,
        data[: int(len(data) * share)],
        "not a readable ONNX model|not an ONNX model|damaged",
    )


@pytest.mark.parametrize(
    "data", [b"", b"hello world", b"\x89PNG\r\n\x1a\n" * 9, b"\0" * 64, b"PK\3\4" * 20]
)
def test_a_foreign_file_is_refused(tmp_path, data):
    _refused(tmp_path, data, "not a readable ONNX model|not an ONNX model")


def test_declared_sizes_are_checked_before_memory_is_taken(tmp_path):
    model = _small()
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    tracemalloc.start()
    _refused(tmp_path, model, r"expected \d+ bytes of data, got 48")
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def test_typed_data_of_a_wrong_length_is_refused(tmp_path):
    model = _small()
    held = helper.make_tensor("w", F, [3, 4], np.zeros(12, np.float32))
    del held.float_data[:5]
    model.graph.initializer[0].CopyFrom(held)
    _refused(tmp_path, model, "cannot be read")


@pytest.mark.parametrize("dims", [[-3, 4], [3, 5]])
def test_wrong_dimensions_are_refused(tmp_path, dims):
    model = _small()
    model.graph.initializer[0].dims[:] = dims
    _refused(tmp_path, model, "negative dimension|bytes of data")


@pytest.mark.parametrize(
    ("nodes", "size"),
    [
        (
            [
                helper.make_node("Tile", ["s", "n"], ["t"]),
                helper.make_node("Reshape", ["x", "t"], ["y"]),
            ],
            1 << 40,
        ),
        (
            [
                helper.make_node("ConstantOfShape", ["n"], ["t"]),
                helper.make_node("Reshape", ["x", "t"], ["y"]),
            ],
            1 << 40,
        ),
        (
            [
                helper.make_node("Range", ["a", "b", "c"], ["t"]),
                helper.make_node("Reshape", ["x", "t"], ["y"]),
            ],
            1 << 40,
        ),
    ],
)
def test_a_huge_computed_shape_takes_no_memory(tmp_path, nodes, size):
    held = {"n": [size], "s": [1], "a": 0, "b": size, "c": 1}
    stored = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in held.items()]
    tracemalloc.start()
    _refused(tmp_path, model_of(nodes, [("x", F, [2])], [("y", F, None)], stored), "not supported")
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


# -- external data --


def _external(tmp_path, location, *, offset="0", length="48", content=48, inside="weights.bin"):
    model = _small()
    (tmp_path / "folder").mkdir(exist_ok=True)
    if inside:
        data = np.arange(12, dtype=np.float32).tobytes()
        (tmp_path / "folder" / inside).write_bytes(data[:content])
    held = model.graph.initializer[0]
    held.ClearField("raw_data")
    held.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            held.external_data.add(key=key, value=value)
    return _written(tmp_path / "folder", model)


def test_external_data_is_read(tmp_path):
    imported = import_file(_external(tmp_path, "weights.bin"))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(execute(imported, [x])[0], x @ np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("location", ["../secret.bin", "a/../../secret.bin", "", "\0", "x" * 5000])
def test_external_data_may_not_leave_the_folder(tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(b"\1" * 48)
    with pytest.raises(UserError, match="is not in the model's folder"):
        import_file(_external(tmp_path, location))


def test_an_absolute_location_is_refused(tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"\1" * 48)
    with pytest.raises(UserError, match="is not in the model's folder"):
        import_file(_external(tmp_path, str(tmp_path / "secret.bin")))


def test_a_link_that_leaves_the_folder_is_refused(tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"\1" * 48)
    (tmp_path / "folder").mkdir()
    os.symlink(tmp_path / "secret.bin", tmp_path / "folder" / "link.bin")
    with pytest.raises(UserError, match="is not in the model's folder"):
        import_file(_external(tmp_path, "link.bin"))


def test_a_loop_of_links_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.symlink(tmp_path / "folder" / "b", tmp_path / "folder" / "a")
    os.symlink(tmp_path / "folder" / "a", tmp_path / "folder" / "b")
    with pytest.raises(UserError, match=r"is not in the model's folder|not found"):
        import_file(_external(tmp_path, "a"))


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"inside": ""}, "file 'weights.bin' not found"),
        ({"content": 40}, "expected 48 bytes"),
        ({"length": "40"}, "expected 48 bytes"),
        ({"offset": "8"}, "expected 48 bytes"),
        ({"offset": "-8"}, "expected 48 bytes"),
        ({"offset": "many"}, "is not a number"),
        ({"length": str(1 << 60)}, "expected 48 bytes"),
    ],
)
def test_wrong_external_data_is_refused(tmp_path, facts, match):
    with pytest.raises(UserError, match=match):
        import_file(_external(tmp_path, "weights.bin", **facts))


def test_external_data_needs_a_folder(tmp_path):
    model = onnx.load(_external(tmp_path, "weights.bin"), load_external_data=False)
    with pytest.raises(UserError, match="not read from a file"):
        import_proto(model)


# -- graphs --


def test_unsorted_and_cyclic_graphs_are_refused(tmp_path):
    nodes = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    _refused(tmp_path, model_of(nodes, [("x", F, [2])], [("a", F, [2])]), "before it is defined")


def test_a_name_given_twice_is_refused(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])]
    _refused(tmp_path, model_of(nodes, [("x", F, [2])], [("y", F, [2])]), "'y' is defined twice")


def test_an_output_that_nothing_makes_is_refused(tmp_path):
    _refused(
        tmp_path,
        model_of([helper.make_node("Relu", ["x"], ["y"])], [("x", F, [2])], [("z", F, [2])]),
        "no node produces output 'z'",
    )


@pytest.mark.parametrize("read", [True, False])
def test_an_output_that_a_translation_leaves_out_is_refused_with_its_node(
    tmp_path, monkeypatch, read
):
    from core_compiler.frontends.onnx.importer import TABLE

    right = TABLE["Split"]
    monkeypatch.setitem(TABLE, "Split", lambda *given: right(*given)[:1])
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)]
    nodes += [helper.make_node("Relu", ["b"], ["y"]) for _ in range(read)]
    model = model_of(nodes, [("x", F, [4])], [("y" if read else "b", F, [2])])
    _refused(tmp_path, model, r"Split \(its output 'b' is not supported; model\.onnx:1\)")


def test_all_unsupported_ops_are_named_at_once(tmp_path):
    nodes = [
        helper.make_node("MaxRoiPool", ["x", "x"], ["a"]),
        helper.make_node("Frobnicate", ["a"], ["b"], domain="acme"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("TfIdfVectorizer", ["x"], ["y"]),
    ]
    _refused(
        tmp_path,
        model_of(
            nodes, [("x", F, [2, 2])], [("y", F, [2])], opsets=[helper.make_opsetid("acme", 1)]
        ),
        r"3 ops are not supported: MaxRoiPool \(no translation; model\.onnx:1\); "
        r"acme::Frobnicate \(no translation; model\.onnx:2\); TfIdfVectorizer",
    )


def test_strings_and_sequences_are_refused(tmp_path):
    node = helper.make_node("Identity", ["x"], ["y"])
    _refused(
        tmp_path,
        model_of([node], [("x", TensorProto.STRING, [2])], [("y", TensorProto.STRING, [2])]),
        "tensors of type STRING are not supported",
    )
    model = model_of(
        [helper.make_node("SequenceAt", ["x", "i"], ["y"])], [("i", I, [])], [("y", F, [2])]
    )
    model.graph.input.append(helper.make_tensor_sequence_value_info("x", F, [2]))
    _refused(tmp_path, model, "input 'x' is a sequence")


def test_a_node_that_breaks_its_schema_is_told(tmp_path):
    nodes = [helper.make_node("Relu", ["x", "x", "x"], ["y"])]
    _refused(
        tmp_path,
        model_of(nodes, [("x", F, [2])], [("y", F, [2])]),
        "does not match the op's definition",
    )
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"])]
    _refused(
        tmp_path,
        model_of(nodes, [("x", F, [2])], [("y", F, [4])]),
        "does not match the op's definition",
    )


def test_inconsistent_shapes_are_told_with_their_sizes(tmp_path):
    _refused(
        tmp_path,
        model_of(
            [helper.make_node("Add", ["x", "y"], ["z"])],
            [("x", F, [2, 3]), ("y", F, [2, 4])],
            [("z", F, [2, 3])],
        ),
        r"Add \(shapes \(2, 3\), \(2, 4\) do not broadcast",
    )


def test_a_function_that_calls_itself_is_refused(tmp_path):
    function = helper.make_function(
        "own",
        "f",
        ["x"],
        ["y"],
        [helper.make_node("f", ["x"], ["y"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )
    model = model_of(
        [helper.make_node("f", ["x"], ["y"], domain="own")],
        [("x", F, [2])],
        [("y", F, [2])],
        opsets=[helper.make_opsetid("own", 1)],
        functions=[function],
    )
    _refused(tmp_path, model, "calls itself")


def test_of_functions_of_one_name_the_overload_that_is_called_is_taken():
    def function(op, overload):
        nodes = [helper.make_node(op, ["a"], ["b"])]
        own = helper.make_function("own", "f", ["a"], ["b"], nodes, [helper.make_opsetid("", 18)])
        own.overload = overload
        return own

    nodes = [helper.make_node("f", ["x"], [name], domain="own") for name in ("y", "z")]
    nodes[0].overload, nodes[1].overload = "first", "second"
    model = model_of(
        nodes,
        [("x", F, [2])],
        [("y", F, [2]), ("z", F, [2])],
        opsets=[helper.make_opsetid("own", 1)],
        functions=[function("Neg", "first"), function("Exp", "second")],
    )
    _agrees(model, x=np.array([1, 2], np.float32))


def test_functions_that_multiply_without_end_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("core_compiler.frontends.onnx.importer.MAX_NODES", 1000)
    functions = [
        helper.make_function(
            "own",
            "f0",
            ["x"],
            ["y"],
            [helper.make_node("Neg", ["x"], ["y"])],
            [helper.make_opsetid("", 18)],
        )
    ]
    for level in range(1, 40):
        nodes = [
            helper.make_node(f"f{level - 1}", ["x"], ["h"], domain="own"),
            helper.make_node(f"f{level - 1}", ["h"], ["y"], domain="own"),
        ]
        functions.append(
            helper.make_function(
                "own", f"f{level}", ["x"], ["y"], nodes, [helper.make_opsetid("own", 1)]
            )
        )
    model = model_of(
        [helper.make_node("f39", ["x"], ["y"], domain="own")],
        [("x", F, [2])],
        [("y", F, [2])],
        opsets=[helper.make_opsetid("own", 1)],
        functions=functions,
    )
    _refused(tmp_path, model, "more than 1000 nodes")


@given(st.data())
@example(None)
def test_a_damaged_file_is_refused_or_harmless(tmp_path_factory, data):
    """Bytes changed, cut out or put in anywhere: an import, or one line; no large allocation."""
    held = bytearray(_small().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4)) if data else 0):
        place = data.draw(st.integers(0, len(held) - 1))
        kind = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if kind == "change":
            held[place] = data.draw(st.integers(0, 255))
        elif kind == "cut" and len(held) > 20:
            del held[place : place + data.draw(st.integers(1, 8))]
        else:
            held[place:place] = data.draw(st.binary(min_size=1, max_size=8))
    path = _written(tmp_path_factory.mktemp("fuzz"), bytes(held))
    told = ""
    tracemalloc.start()
    try:
        import_file(path)
    except UserError as error:
        told = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert "\n" not in told
    assert peak < 1 << 27


# -- symbolic sizes --


def _symbolic():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Shape", ["z"], ["t"]),
        helper.make_node("Concat", ["s", "t"], ["u"], axis=0),
        helper.make_node("ReduceProd", ["u"], ["p"], keepdims=1),
        helper.make_node("Cast", ["p"], ["f"], to=F),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    return model_of(
        nodes, [("x", F, ["batch", 3]), ("z", F, ["batch", "length"])], [("y", F, ["batch", 3])]
    )


def test_symbols_take_the_example_inputs_sizes():
    imported = _agrees(_symbolic(), x=np.ones((4, 3), np.float32), z=np.ones((4, 5), np.float32))
    assert imported.facts["bound"] == {
        "batch": {"size": 4, "low": 0, "high": -1},
        "length": {"size": 5, "low": 0, "high": -1},
    }


def test_symbols_take_given_sizes_and_else_one():
    imported = import_proto(_symbolic(), sizes={"batch": 6})
    assert [v.type.shape for v in imported.module.main.arguments] == [(6, 3), (6, 1)]


def test_one_symbol_with_two_sizes_is_refused():
    with pytest.raises(UserError, match=r"input 'z' has size 5 on axis 0, expected 4"):
        import_proto(
            _symbolic(), inputs={"x": np.ones((4, 3), np.float32), "z": np.ones((5, 5), np.float32)}
        )


def test_inputs_that_fix_shapes_are_bound_and_noted():
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = model_of([node], [("x", F, [6]), ("s", I, [2])], [("y", F, None)])
    imported = _agrees(model, x=np.arange(6, dtype=np.float32), s=np.array([2, -1]))
    assert imported.facts["bound_values"] == {"s": [2, -1]}
    with pytest.raises(UserError, match="the shape depends on the values of the model's inputs"):
        import_proto(model)


# -- control flow --


def _branch(name, node):
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info("r", F, [3])])


@pytest.mark.parametrize("yes", [True, False])
def test_if_becomes_regions_that_read_around_them(yes):
    node = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=_branch("t", helper.make_node("Neg", ["x"], ["r"])),
        else_branch=_branch("e", helper.make_node("Add", ["x", "x"], ["r"])),
    )
    model = model_of([node], [("c", TensorProto.BOOL, []), ("x", F, [3])], [("y", F, [3])])
    imported = _agrees(model, c=np.array(yes), x=np.arange(3, dtype=np.float32))
    assert [op.kind for op in imported.module.main.body.ops] == ["core.if"]


def _loop_body():
    nodes = [
        helper.make_node("Add", ["v", "x"], ["next"]),
        helper.make_node("Identity", ["go"], ["again"]),
        helper.make_node("Mul", ["v", "v"], ["seen"]),
    ]
    infos = [
        helper.make_tensor_value_info(n, t, s)
        for n, t, s in (("i", I, []), ("go", TensorProto.BOOL, []), ("v", F, [3]))
    ]
    outs = [
        helper.make_tensor_value_info(n, t, s)
        for n, t, s in (("again", TensorProto.BOOL, []), ("next", F, [3]), ("seen", F, [3]))
    ]
    return helper.make_graph(nodes, "body", infos, outs)


def test_a_loop_of_known_length_is_unrolled_and_collects():
    trips = numpy_helper.from_array(np.array(4, np.int64), "n")
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=_loop_body())
    model = model_of([node], [("x", F, [3])], [("y", F, [3]), ("all", F, [4, 3])], [trips])
    imported = _agrees(model, x=np.arange(3, dtype=np.float32))
    assert all(not op.regions for op in imported.module.main.body.ops)


LONG = 1030  # above what is unrolled


def test_a_loop_of_many_steps_collects_too():
    trips = numpy_helper.from_array(np.array(LONG, np.int64), "n")
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=_loop_body())
    model = model_of([node], [("x", F, [3])], [("y", F, [3]), ("all", F, [LONG, 3])], [trips])
    imported = _agrees(model, x=np.arange(3, dtype=np.float32))
    assert [op.kind for op in imported.module.main.body.ops if op.regions] == ["core.while"]


def test_a_loop_of_many_steps_that_collects_and_may_end_sooner_is_refused():
    body = _loop_body()
    less = helper.make_node("Less", ["i", "few"], ["again"])
    few = helper.make_node("Constant", [], ["few"], value_int=5)
    del body.node[1]
    body.node.extend([few, less])
    trips = numpy_helper.from_array(np.array(LONG, np.int64), "n")
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    model = model_of([node], [("x", F, [3])], [("y", F, [3]), ("all", F, None)], [trips])
    with pytest.raises(UserError, match="a condition that may end it early"):
        import_proto(model)


@pytest.mark.slow
@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_of_many_steps_is_a_loop(back):
    """Along other axes than the first, from the end or from the beginning."""
    nodes = [
        helper.make_node("Mul", ["h", "half"], ["less"]),
        helper.make_node("Add", ["less", "a"], ["next"]),
        helper.make_node("Mul", ["next", "b"], ["seen"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(n, F, [2]) for n in ("h", "a", "b")],
        [helper.make_tensor_value_info(n, F, [2]) for n in ("next", "seen")],
        [numpy_helper.from_array(np.float32(0.5), "half")],
    )
    scan = helper.make_node(
        "Scan",
        ["x", "a", "b"],
        ["y", "all"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[1, 0],
        scan_input_directions=[back, 0],
        scan_output_axes=[1],
        scan_output_directions=[back],
    )
    infos = [("x", F, [2]), ("a", F, [2, LONG]), ("b", F, [LONG, 2])]
    model = model_of([scan], infos, [("y", F, [2]), ("all", F, [2, LONG])])
    draw = np.random.default_rng(0).standard_normal
    given = {n: draw(shape).astype(np.float32) for n, _, shape in infos}
    imported = _agrees(model, **given)
    assert [op.kind for op in imported.module.main.body.ops if op.regions] == ["core.while"]


def test_a_loop_of_unknown_length_becomes_while():
    body = _loop_body()
    del body.output[2], body.node[2]
    model = model_of(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        [("n", I, []), ("x", F, [3])],
        [("y", F, [3])],
    )
    imported = import_proto(model)
    assert [op.kind for op in imported.module.main.body.ops if op.regions] == ["core.while"]
    x = np.arange(3, dtype=np.float32)
    for count in (0, 1, 5):
        (made,) = execute(imported, [np.array(count), x])
        np.testing.assert_array_equal(made, x * (count + 1))


_DRAWING = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 n, int64 m, float[3] x) => (float[3] y) <bool go = {1}> {
    y = Loop (n, go, x) <body = outer (int64 i, bool a, float[3] u) => (bool b, float[3] z) {
        b = Identity(a)
        w = Loop (m, go, u) <body = inner (int64 j, bool c, float[3] s) => (bool d, float[3] t) {
            d = Identity(c)
            k = RandomUniform <shape = [3]> ()
            big = Greater(j, i)
            l = If (big) <
                then_branch = yes () => (float[3] p) { p = RandomUniform <shape = [3]> () },
                else_branch = no () => (float[3] q) { q = Neg(k) }>
            kl = Add(k, l)
            t = Add(s, kl) }>
        e = RandomUniform <shape = [3]> ()
        z = Add(w, e) }> }"""


def test_loops_draw_other_numbers_in_each_iteration():
    """Of one inside another and of a branch: no execution of an op draws what another drew."""
    imported = import_proto(onnx.parser.parse_model(_DRAWING))

    def drawn(stream: int, trip: int) -> np.ndarray:
        return philox.uniform(philox.words(0, stream, 0, 3, trip)).astype(np.float32)

    x = np.arange(3, dtype=np.float32)
    wanted, trip = x, 0
    for i in range(3):
        for j in range(4):
            k = drawn(0, trip)
            wanted, trip = wanted + (k + (drawn(1, trip) if j > i else -k)), trip + 1
        wanted, trip = wanted + drawn(2, trip), trip + 1
    (made,) = execute(imported, [np.array(3), np.array(4), x])
    np.testing.assert_array_equal(made, wanted)


# -- com.microsoft, against onnxruntime --


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_microsofts_activations(op):
    model = model_of(
        [helper.make_node(op, ["x"], ["y"], domain="com.microsoft")],
        [("x", F, [4, 5])],
        [("y", F, [4, 5])],
        opsets=[helper.make_opsetid("com.microsoft", 1)],
    )
    _agrees(model, x=np.linspace(-4, 4, 20, dtype=np.float32).reshape(4, 5))


def test_microsofts_skip_layer_norm_and_fused_matmul():
    generator = np.random.default_rng(0)
    opsets = [helper.make_opsetid("com.microsoft", 1)]
    nodes = [
        helper.make_node(
            "SkipLayerNormalization", ["x", "s", "g", "b"], ["h"], domain="com.microsoft"
        ),
        helper.make_node(
            "FusedMatMul", ["h", "w"], ["y"], domain="com.microsoft", transB=1, alpha=0.5
        ),
    ]
    shapes = {"x": [2, 3, 8], "s": [2, 3, 8], "g": [8], "b": [8], "w": [5, 8]}
    model = model_of(
        nodes, [(n, F, s) for n, s in shapes.items()], [("y", F, [2, 3, 5])], opsets=opsets
    )
    _agrees(
        model, **{n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    )


def test_ops_of_an_early_version_that_mean_the_same_are_read():
    """Not has one definition since version 1; Reshape of version 1 had an attribute for it."""
    x = np.array([True, False])
    agrees(one_node("Not", {"x": x}, "y", opset=1, types={"y": TensorProto.BOOL}), {"x": x})
    with pytest.raises(UserError, match=r"opset 1 is too old: it defines Reshape differently"):
        import_proto(one_node("Reshape", {"x": np.ones(2, "f")}, "y", opset=1, shape=[2, 1]))


def test_a_sequence_is_not_reversed_along_its_batches():
    """The default of each axis is 1 or 0: one that is given alone may meet the other's default."""
    x, lengths = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 1])
    agrees(one_node("ReverseSequence", {"x": x, "n": lengths}, "y"), {"x": x, "n": lengths})
    with pytest.raises(UserError, match="batches along axis 0 and time along axis 0"):
        import_proto(one_node("ReverseSequence", {"x": x, "n": lengths}, "y", batch_axis=0))
