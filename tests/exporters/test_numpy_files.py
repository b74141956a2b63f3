"""What an exported file reads like, that it runs alone, and what is asked for wrongly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from core_compiler.exporters.numpy_source import export, helpers, write
from core_compiler.ir import Module, Value, tensor
from core_compiler.ops import Builder, evaluate_block
from core_compiler.support.errors import UserError
from tests.exporters.numpy_runs import computed, namespace
from tests.exporters.onnx_runs import alike
from tests.exporters.test_onnx_models import SLACK, stages
from tests.ops.samples.effects import COUNTER, VECTOR, block
from tests.passes.programs import inputs, program
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def text_of_main(module: Module, inputs_, outputs) -> str:
    """The function main of the export, without its decorator."""
    text = export(module, inputs=inputs_, outputs=outputs).text
    return text[text.index("def main") : text.index("\n\n\nif __name__")]


# -- reading ---------------------------------------------------------------------------------------


def test_it_reads_like_this():
    def build(b, x):
        hidden = b.matmul(x, b.constant(WEIGHT, name="dense.weight"))
        bias = b.constant(np.array([0.1, 0.2, 0.3], np.float32), name="dense.bias")
        hidden = b.add(hidden, b.expand(bias, (2, 3)))
        scaled = b.mul(hidden, b.scalar_like(-0.5, hidden))
        total = b.broadcast(b.reduce_sum(scaled, axes=(1,)), shape=(2, 3), dims=(0,))
        shares = b.softmax(b.sub(scaled, total), axis=1)
        best = b.argmax(shares, axis=1)
        return shares, b.take(b.constant(np.array([7, 8, 9])), best)

    assert (
        text_of_main(program(build, "2x4xf32"), ["x"], ["shares", "best class"])
        == '''\
def main(x):
    """x float32 [2, 4] -> shares float32 [2, 3], best class int64 [2]"""
    # net
    matmul = x @ W["dense.weight"]  # model.py:2
    add = matmul + W["dense.bias"]  # model.py:5
    mul = add * (-0.5)  # model.py:8
    reduce_sum = mul.sum(1)  # model.py:9
    sub = mul - reduce_sum[:, None]  # model.py:11
    softmax_1 = softmax(sub, 1)  # model.py:12
    argmax = softmax_1.argmax(1)  # model.py:13
    take = np.take(np.array([7, 8, 9]), argmax, 0, mode="clip")  # model.py:15
    return softmax_1, take'''
    )


def test_only_the_helpers_that_are_called_are_there():
    module = program(lambda b, x: (b.gelu(x), b.softmax(x, axis=0)), "3xf32")
    text = export(module, inputs=["x"], outputs=["a", "b"]).text
    found = [line.split("(")[0][4:] for line in text.splitlines() if line.startswith("def ")]
    assert found == ["erf", "gelu", "softmax", "main"]
    assert text.startswith('"""A tensor program in NumPy 2, written by Compiler Workbench ')
    assert [s for s in text.splitlines() if s.startswith(("import", "from"))] == [
        "import math",
        "import numpy as np",
    ]
    assert "W = " not in text


def test_helpers_use_numpy_and_math_alone():
    import ast
    import inspect

    tree = ast.parse(inspect.getsource(helpers))
    imported = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert imported == ["math", "numpy"]


def loops() -> Module:
    """y = x; while i < 4: y = y + 10 if i is even else y * x; then a test of two statements."""
    x = Value(tensor((4,), "f32"), "x")

    def step(b, i, y):
        even = b.eq(b.mod(i, b.scalar_like(2, i)), b.scalar_like(0, i))
        then = block([], lambda c: c.add(y, c.scalar_like(10, y)))
        other = block([], lambda c: c.mul(y, x))
        return b.add(i, b.scalar_like(1, i)), b.if_(even, regions=(then, other))

    go = block([COUNTER, VECTOR], lambda b, i, y: b.lt(i, b.scalar_like(4, i)))
    both = block(
        [COUNTER, VECTOR],
        lambda b, i, y: b.and_(
            b.lt(i, b.scalar_like(9, i)), b.lt(b.reduce_sum(y, axes=(0,)), b.constant(1e6, "f32"))
        ),
    )
    builder = Builder()
    start = builder.constant(0, "i32")
    first = builder.while_(start, x, regions=(go, block([COUNTER, VECTOR], step)))
    _, y = builder.while_(*first, regions=(both, block([COUNTER, VECTOR], step)))
    module = program(lambda b, v: v, "4xf32")
    body = module.main.body.with_(arguments=(x,), ops=tuple(builder.ops), outputs=(y,))
    return module.with_main(body)


def test_control_flow_is_pythons(tmp_path):
    module = loops()
    arrays = [np.array([1, 2, -3, 0.5], np.float32)]
    alike(computed(module, tmp_path, arrays), evaluate_block(module.main.body, arrays))
    assert text_of_main(module, ["x"], ["y"]).startswith('''\
def main(x):
    """x float32 [4] -> y float32 [4]"""
    carried, carried_1 = np.int32(0), x
    while carried < 4:
        mod = np.mod(carried, 2)
        eq = mod == 0
        add = carried + 1
        if eq:
            add_1 = carried_1 + 10.0
            chosen = add_1
        else:
            mul = carried_1 * x
            chosen = mul
        carried, carried_1 = add, chosen
    carried_2, carried_3 = carried, carried_1
    while True:
        lt_1 = carried_2 < 9
        reduce_sum = carried_3.sum(0)
        lt_2 = reduce_sum < 1e+06
        and_1 = lt_1 & lt_2
        if not and_1:
            break
''')


def test_long_calls_and_operations_are_broken(tmp_path):
    def build(b, x):
        kernel = b.constant(
            np.ones((2, 1, 3, 3), np.float32), name="a.rather.long.name.of.a.kernel"
        )
        bias = b.constant(WEIGHT[:, 0][:2].copy(), name="bias." + "of.a.module." * 6 + "x")
        made = b.conv(x, kernel, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1))
        return b.add(made, b.broadcast(bias, shape=made.type.shape, dims=(1,)))

    module = program(build, "1x1x5x5xf32")
    main = text_of_main(module, ["x"], ["y"])
    assert main.splitlines()[3:] == [
        "    # model.py:3",
        "    conv_1 = conv(",
        '        x, W["a.rather.long.name.of.a.kernel"], strides=(1, 1), low=(1, 1), high=(1, 1),',
        "        dilations=(1, 1)",
        "    )",
        "    # model.py:5",
        "    add = (",
        "        conv_1",
        f'        + W["bias.{"of.a.module." * 6}x"][:, None, None]',
        "    )",
        "    return (add,)",
    ]
    alike(
        computed(module, tmp_path, inputs(module)),
        evaluate_block(module.main.body, inputs(module), module.weights),
    )


# -- names -----------------------------------------------------------------------------------------


def test_names_that_python_or_the_file_keeps(tmp_path):
    """Keywords, builtins, the file's own names, two spellings that Python reads as one, texts that
    are no names, what would end a comment or a docstring."""
    odd = [
        "class",
        "np",
        "W",
        "sum",
        "softmax",
        "ﬁ",
        "fi",
        "größe",
        "a b",
        "1x",
        "数",
        'q"""\\"\n#',
    ]

    def build(b, *xs):
        weight = b.constant(WEIGHT, name="w \"\\\n'é/..")
        made = [
            b.softmax(b.op("core.neg", (x,), names=(odd[i],)), axis=0) for i, x in enumerate(xs)
        ]
        return (*made, weight)

    arguments = [Value(tensor((3,), "f32"), n) for n in odd]
    builder = Builder(program(lambda b, x: x, "1xf32").weights)
    outputs = build(builder, *arguments)
    module = program(lambda b, x: x, "1xf32")
    module = module.with_(weights=builder.weights).with_main(
        module.main.body.with_(arguments=tuple(arguments), ops=tuple(builder.ops), outputs=outputs)
    )
    files = write(
        module,
        tmp_path / "odd.py",
        inputs=odd,
        name='x"""\ny',
        outputs=[f"result {n}" for n in (*odd, "w")],
    )
    arrays = [np.linspace(-1, 1, 3, dtype=np.float32) * i for i in range(len(odd))]
    found = namespace(files[0])["main"](*arrays)
    alike(found, evaluate_block(module.main.body, arrays, module.weights))
    assert run(files[0]).splitlines()[0] == "result class float32 [3]"


def test_a_name_that_is_not_printable_is_the_same_text_in_the_file(tmp_path):
    """Signs beyond 16 bits beside it too."""
    module = program(lambda b, x: b.add(x, b.constant(WEIGHT, name="😀\n")), "4x3xf32")
    arrays = inputs(module)
    found = computed(module, tmp_path, arrays)
    alike(found, evaluate_block(module.main.body, arrays, module.weights))
    (path, _) = write(module, tmp_path / "x.py", inputs=["x"], outputs=["\t😀"])
    assert run(path) == "\t😀 float32 [4, 3]\n"


def test_weights_whose_names_no_archive_can_hold(tmp_path):
    names = ("w", "w.npy", "w.npy.npy", "a\0b", "a\ud800b")

    def build(b, x):
        for number, name in enumerate(names):
            x = b.add(x, b.constant(WEIGHT * 2**number, name=name))
        return x

    module = program(build, "4x3xf32")
    arrays = inputs(module)
    found = computed(module, tmp_path, arrays)
    alike(found, evaluate_block(module.main.body, arrays, module.weights))
    assert np.load(tmp_path / "exported.npz").files == ["w", "w_1", "w_2", "a?b", "a?b_1"]


def test_weights_of_every_dtype(tmp_path):
    kinds = (
        np.float64,
        np.int8,
        np.bool_,
        np.uint64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e3m4,
        ml_dtypes.int4,
        ml_dtypes.uint2,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.float8_e8m0fnu,
    )
    arrays = [(np.arange(30).reshape(5, 6) % 2 + (k is not np.bool_)).astype(k) for k in kinds]
    module = program(lambda b, x: tuple(b.constant(a) for a in arrays), "1xf32")
    found = computed(module, tmp_path, [np.zeros(1, np.float32)])
    for got, want in zip(found, arrays, strict=True):
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()
    stored = np.load(tmp_path / "exported.npz")  # no pickles
    assert len(stored.files) == len({a.tobytes() + str(a.dtype).encode() for a in arrays})


# -- running ---------------------------------------------------------------------------------------

#: A process in which nothing of ours can be imported.
ALONE = """
import runpy, sys
for name in ("core_compiler", "workbench", "onnx", "torch"):
    sys.modules[name] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run(path: Path) -> str:
    """What the file prints, run by itself."""
    command = [sys.executable, "-I", "-W", "error", "-c", ALONE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_runs_alone(tmp_path):
    def build(b, x, i, p):
        wide = b.select(p, x, b.exp(x))
        return b.take(wide, i, axis=0), b.cast(b.erf(x), dtype="bf16"), b.constant(WEIGHT)

    module = program(build, "4x3xbf16", "2xi32", "4x3xi1")
    path = tmp_path / "alone.py"
    files = write(module, path, inputs=["x", "i", "p"], outputs=["a", "b", "c"])
    assert files == [path, tmp_path / "alone.npz"]
    assert run(path).splitlines() == ["a bfloat16 [2, 3]", "b bfloat16 [4, 3]", "c float32 [4, 3]"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", slow_but(("digits-mlp", "digits-cnn"), NARROW))
def test_a_model_computes_the_same_and_runs_alone(name, tmp_path: Path):
    model = models.load(read_spec(name, "torch", **NARROW[name]))
    imported, arrays = model.imported, list(model.inputs)
    wanted = evaluate_block(imported.module.main.body, arrays, imported.module.weights)
    for stage, module in stages(imported.module).items():
        path = tmp_path / f"{stage}.py"
        write(module, path, inputs=imported.inputs, outputs=imported.outputs, name=name)
        found = [np.asarray(a) for a in namespace(path)["main"](*arrays)]
        alike(found, wanted, SLACK)
        told = [
            f"{n} {a.dtype} {list(a.shape)}" for n, a in zip(imported.outputs, wanted, strict=True)
        ]
        assert run(path).splitlines() == told
        lines = path.read_text().splitlines()
        assert any("# " in line and ".py:" in line for line in lines)


def test_the_same_module_gives_the_same_files(tmp_path):
    model = models.load(read_spec("digits-cnn", "torch", **NARROW["digits-cnn"]))
    ends = {"inputs": model.imported.inputs, "outputs": model.imported.outputs}
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = write(model.imported.module, folder / "m.py", **ends)
        made.append([f.read_bytes() for f in files])
    assert made[0] == made[1]


# -- refusals --------------------------------------------------------------------------------------


@pytest.fixture
def module() -> Module:
    return program(lambda b, x: b.matmul(x, b.constant(WEIGHT)), "2x4xf32")


@pytest.mark.parametrize("name", ["model.txt", "model", ".py", "model.py.onnx"])
def test_only_python_files_are_written(module, tmp_path, name):
    with pytest.raises(UserError, match=r"is not the name of a Python file; use a name like x\.py"):
        write(module, tmp_path / name, inputs=["x"], outputs=["y"])
    assert not list(tmp_path.iterdir())


def test_bad_requests_are_told(module, tmp_path, finished):
    with pytest.raises(UserError, match="expected 1 names for the inputs of main, got 0"):
        export(module, inputs=[], outputs=["y"])
    with pytest.raises(UserError, match="cannot be written: No such file or directory"):
        write(module, tmp_path / "none" / "m.py", inputs=["x"], outputs=["y"])
    below = next(s for s in finished.stages if s.name == "outline_kernels")
    with pytest.raises(UserError, match="below the tensor level"):
        export(below.module, inputs=["x"], outputs=["y", "z"])
    x = Value(tensor(("batch", 2), "f32"))
    builder = Builder()
    body = module.main.body.with_(arguments=(x,), outputs=(builder.neg(x),), ops=builder.ops)
    with pytest.raises(UserError, match="symbolic sizes are not supported: batch"):
        export(module.with_main(body), inputs=["x"], outputs=["y"])


def test_a_failure_leaves_what_was_there(module, tmp_path, monkeypatch):
    path = tmp_path / "m.py"
    write(module, path, inputs=["x"], outputs=["y"])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(stream, array, allow_pickle):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(UserError, match="No space left on device"):
        write(module, path, inputs=["x"], outputs=["y"])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
