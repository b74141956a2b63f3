"""The text form: what it looks like, that it reads back the same, and that a real MLIR takes it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from core_compiler.ir import Block, Function, Module, Op, Value, WeightStore, tensor
from core_compiler.ir.core import structure_key
from core_compiler.ir.parser import parse, parse_attribute, parse_type
from core_compiler.ir.text import (
    line_table,
    print_attribute,
    print_function,
    print_module,
    print_op,
    print_ops,
    value_names,
)
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.ir import modules as strategies
from tests.ir.modules import F32, difference, same_attribute, small_module

GOLDEN = Path(__file__).parent / "golden"
IREE_OPT = Path(sys.executable).with_name("iree-opt")
needs_mlir = pytest.mark.skipif(not IREE_OPT.exists(), reason="iree-base-compiler is not installed")


def mlir(text: str) -> str:
    """``text`` through a real MLIR and out again."""
    command = [
        IREE_OPT,
        "--allow-unregistered-dialect",
        "--mlir-print-op-generic",
        "--mlir-print-debuginfo",
        "-",
    ]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, f"{done.stderr.decode()}\n{text}"
    return done.stdout.decode()


# -- golden text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("locations", ["", "short", "full"])
def test_golden(locations):
    text = print_module(small_module(), locations=locations)
    path = GOLDEN / f"small{'_' if locations else ''}{locations}.mlir"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_one_op_on_one_line():
    x, y = Value(F32, "x"), Value(F32)
    op = Op("core.sum", (x,), (y,), {"axis": 1})
    assert print_op(op) == (
        '%0 = "core.sum"(%x) {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>'
    )
    loop = Op("core.while", (x,), (y,), {}, (Block((), (), ()),))
    assert print_op(loop, numbers={y: 41}) == (
        '%41 = "core.while"(%x) ({...}) : (tensor<2x3xf32>) -> tensor<2x3xf32>'
    )


def test_ops_that_stand_apart_name_a_value_alike():
    """As the ops before and after a rewrite: each its own number, also of values without a name."""
    x, a, b, c = Value(F32, "x"), Value(F32), Value(F32), Value(F32)
    before = Op("core.f", (a,), (b,))
    after = [Op("core.g", (a,), (c,)), Op("core.h", (c, x), (Value(F32),))]
    lines = print_ops([before, *after], {x: "%x", a: "%0", b: "%1"})
    assert [line.partition(" :")[0] for line in lines] == [
        '%1 = "core.f"(%0)',
        '%3 = "core.g"(%0)',
        '%4 = "core.h"(%3, %x)',
    ]


def test_a_function_alone_is_what_the_module_shows():
    module = small_module()
    shown = print_function(module.functions["copy"]).splitlines()
    lines = print_module(module).splitlines()
    assert [f"  {line}" for line in shown] == lines[-1 - len(shown) : -1]


def test_numbers_given_by_the_caller_stay_when_other_ops_come():
    x, a, b = Value(F32, "x"), Value(F32), Value(F32)
    function = Function("main", Block((x,), (Op("core.exp", (x,), (b,)),), (b,)))
    assert value_names(function, {a: 7, b: 8})[b] == "%8"


def test_repeated_names_differ_and_read_back_alike():
    x, y = Value(F32, "x"), Value(F32, "x")
    module = Module({"main": Function("main", Block((x,), (Op("core.exp", (x,), (y,)),), (y,)))})
    text = print_module(module)
    assert "%x$2 = " in text
    again = parse(text).main
    assert again.arguments[0].name == again.outputs[0].name == "x"


def test_line_table_names_what_each_line_shows():
    module = small_module()
    table = line_table(module)
    assert "\n".join(table.lines) + "\n" == print_module(module)
    assert len(table.keys) == len(table.lines)
    loop = module.main.body.ops[3]
    shown = [line.strip() for line, key in zip(table.lines, table.keys, strict=True) if key is loop]
    assert shown[0].startswith('%looped = "core.while"') and shown[-1].startswith("})")
    for op in module.walk():
        assert f'"{op.kind}"' in table.lines[table.line_of()[op]]


# -- round trips ---------------------------------------------------------------------------------


@settings(max_examples=examples(50))
@given(strategies.modules())
def test_printed_modules_read_back_the_same(module):
    for locations in ("", "full"):
        text = print_module(module, locations=locations)
        again = parse(text)
        assert difference(module, again, origins=bool(locations)) == ""
        assert print_module(again, locations=locations) == text


@given(strategies.types)
def test_types_read_back(type_):
    assert parse_type(str(type_)) is type_


@given(strategies.attributes)
def test_attributes_read_back(value):
    store = WeightStore()
    for resource in _resources(value):
        store.put(resource.digest, None)
    assert same_attribute(parse_attribute(print_attribute(value), weights=store), value)


def _resources(value):
    if isinstance(value, tuple):
        return [r for item in value for r in _resources(item)]
    return [value] if hasattr(value, "digest") else []


def test_embedded_weights_read_back():
    module = small_module()
    text = print_module(module, embed_weights=True)
    again = parse(text)
    (digest,) = again.weights
    assert (again.weights[digest] == module.weights[digest]).all()
    tampered = text.replace("0000803f", "0000803e", 1)
    with pytest.raises(UserError, match="do not match their digest"):
        parse(tampered)


def test_weights_of_equal_first_digits_get_longer_names():
    type_ = tensor((100,), "f32")
    digests = ["a" * 12 + "0" * 52, "a" * 12 + "1" * 52]
    values = [Value(type_), Value(type_)]
    ops = [
        Op("core.constant", (), (v,), {"value": strategies.Resource(type_, d)})
        for v, d in zip(values, digests, strict=True)
    ]
    module = Module({"main": Function("main", Block((), tuple(ops), tuple(values)))})
    text = print_module(module)
    assert f"w_{'a' * 12}0" in text and f"w_{'a' * 12}1" in text
    assert difference(module, parse(text)) == ""


def test_short_locations_read_back_as_model_lines():
    again = parse(print_module(small_module(), locations="short"))
    (node,) = again.main.body.ops[1].origin.nodes()
    assert (node.file, node.line) == ("model.py", 7)
    assert again.main.body.ops[1].origin.rule == "decompose"


# -- a real MLIR ---------------------------------------------------------------------------------


@needs_mlir
@pytest.mark.parametrize("locations", ["", "short", "full"])
def test_mlir_takes_the_text_and_its_own_print_reads_back(locations):
    module = small_module()
    again = parse(mlir(print_module(module, locations=locations, embed_weights=True)))
    assert difference(module, again, names=False, origins=False) == ""
    # MLIR's own print drops value names; those of a kernel's size arguments have a meaning.
    assert structure_key(without_kernels(again)) == structure_key(without_kernels(module))


def without_kernels(module):
    kept = {name: f for name, f in module.functions.items() if f.level != "kernel"}
    return module.with_(functions=kept)


@needs_mlir
@settings(max_examples=examples(12))
@given(strategies.modules())
def test_mlir_takes_random_modules(module):
    again = parse(mlir(print_module(module, locations="full")))
    assert difference(module, again, names=False, origins=False) == ""


# -- bad text ------------------------------------------------------------------------------------

HEAD = 'module {\n  "core.func"() ({\n  ^bb0(%x: tensor<2x3xf32>):\n    '
TAIL = '\n    "core.return"() : () -> ()\n  }) {sym_name = "main"} : () -> ()\n}\n'
WRONG = {
    "undefined value": ('%y = "core.exp"(%z) : (f32) -> f32', "4:21", "%z is used before"),
    "defined twice": ('%x = "core.exp"(%x) : (tensor<2x3xf32>) -> f32', "4:5", "defined twice"),
    "operand count": ('%y = "core.exp"(%x) : () -> f32', "4:25", "1 operands but 0"),
    "operand type": ('%y = "core.exp"(%x) : (f32) -> f32', "4:25", "<2x3xf32>, not f32"),
    "result count": ('%y = "core.exp"(%x) : (tensor<2x3xf32>) -> ()', "4:25", "1 results but 0"),
    "no type": ('%y = "core.exp"(%x) : (tensr<2x3xf32>) -> f32', "4:28", "'tensr' is not a type"),
    "bad dtype": ('%y = "core.exp"(%x) : (tensor<2xf33>) -> f32', "4:28", "is not a type"),
    "bad bracket": ('%y = "core.exp"[%x]', "4:20", "expected '('"),
    "bad dense": ('"core.c"() {v = dense<[1, 2]> : tensor<3xi8>} : () -> ()', "4:21", "2 elements"),
    "huge dense": ('"core.c"() {v = dense<0> : tensor<9999999xi64>} : () -> ()', "4:21", "large"),
    "unknown weights": (
        '"core.c"() {v = dense_resource<w_0> : tensor<3xi8>} : () -> ()',
        "4:21",
        "weights w_0",
    ),
    "attribute twice": ('"core.c"() {a = 1, a = 2} : () -> ()', "4:24", "duplicate attribute a"),
    "dictionary as attribute": ('"core.c"() {a = {b = 1}} : () -> ()', "4:5", "not an attribute"),
    "unnamed size": ('"core.c"() {a = tensor<?xf32>} : () -> ()', "4:21", "needs a name"),
    "unclosed string": ('"core.c', "4:5", "expected a string"),
    "location nowhere": ('"core.c"() : () -> () loc(#loc9)', "4:31", "#loc9 is not defined"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_text_names_line_and_column(what):
    line, where, message = WRONG[what]
    with pytest.raises(UserError) as caught:
        parse(HEAD + line + TAIL, where="model.mlir")
    assert caught.value.where == f"model.mlir:{where}", caught.value
    assert message in caught.value.what


def test_cut_and_broken_text_is_a_user_error():
    text = print_module(small_module(), locations="full", embed_weights=True)
    for cut in range(0, len(text) - 2, 31):
        with pytest.raises(UserError):
            parse(text[:cut])
        with contextlib.suppress(UserError):  # most cuts are errors; none may be anything else
            parse(text[:cut] + text[cut + 3 :])


def test_deep_nesting_is_a_user_error():
    with pytest.raises(UserError, match="nested too deeply"):
        parse_attribute("[" * 100_000)


def test_locations_that_refer_to_themselves_are_a_user_error():
    with pytest.raises(UserError, match="refers to itself"):
        parse('module {\n}\n#loc1 = loc(fused<"a">[#loc2])\n#loc2 = loc(fused<"b">[#loc1])\n')


def test_long_origin_chains_read_back():
    origin = strategies.Origin.synthetic("start", "why")
    for step in range(5000):
        origin = strategies.Origin.derived(f"step{step}", [origin])
    op = Op("core.nothing", (), (), None, (), origin)
    module = Module({"main": Function("main", Block((), (op,), ()))})
    again = parse(print_module(module, locations="full"))
    assert again.main.body.ops[0].origin.rules() == origin.rules()


# -- determinism ---------------------------------------------------------------------------------


def test_text_does_not_depend_on_the_hash_seed():
    code = (
        "from tests.ir.modules import small_module\n"
        "from core_compiler.ir.text import print_module\n"
        "print(print_module(small_module(), locations='full'))"
    )
    texts = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        texts.add(done.stdout)
    assert len(texts) == 1
