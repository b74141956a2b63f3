"""A pass of level ``onnx`` as a specification: run it alone, compare the model, keep the bits."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import parser

from core_compiler.debug.bits import same_bits
from core_compiler.driver.legality import levels
from core_compiler.ir import Block, Module, Op, Rewriter, Value, tensor
from core_compiler.ir.text import print_module
from core_compiler.ir.verifier import verify
from core_compiler.onnx_level.dialect import SINCE, domain_and_type, schema
from core_compiler.onnx_level.read import read
from core_compiler.onnx_level.write import write
from core_compiler.passes.base import Pass, PassContext, RefusalContext
from tests.onnx_level.suite import run
from tests.passes.programs import inputs


def module_of(source: str, opset: int = 18, domains: Sequence[str] = ()) -> Module:
    """The module of a graph in ONNX's syntax (and of functions after it); other ``domains``."""
    more = "".join(f', "{domain}" : 1' for domain in domains)
    head = f'<ir_version: 10, opset_import: ["" : {opset}{more}]>'
    return read(parser.parse_model(f"{head}\n{source}"))


def apply(pass_: Pass, module: Module) -> tuple[Module, list[str]]:
    """(module after, the rules that fired): the pass alone; what it makes is a model of ONNX."""
    context = PassContext()
    after = pass_.run(module, context)
    assert not verify(after, levels())
    _assert_versions(after)
    onnx.checker.check_model(write(after), full_check=True)
    return after, [r.rule for r in context.rewrites]


def assert_same_model(got: Module, wanted: Module) -> None:
    """Both are written as the same file: nodes, names, attributes, types and tensors."""
    got_text, wanted_text = (print_module(read(write(m))) for m in (got, wanted))
    if got_text != wanted_text:
        lines = difflib.unified_diff(
            wanted_text.splitlines(), got_text.splitlines(), "expected", "got", lineterm=""
        )
        raise AssertionError("\n".join(lines))


def _assert_versions(module: Module) -> None:
    """Every op is as the model's version of its domain defines it."""
    for function in module.functions.values():
        opsets = dict(module.main.attributes["opsets"]) | dict(function.attributes["opsets"])
        for op in function.body.walk():
            if SINCE in op.attributes:
                domain, op_type = domain_and_type(op)
                assert op[SINCE] == schema(domain, op_type, opsets[domain]).since_version


def becomes(
    pass_: Pass, before: Module | str, after: Module | str, rules: Sequence[str], ours: bool = False
) -> Module:
    """``before`` becomes ``after`` by just these rewrites, and computes the same bits.

    ``ours``: only by the level's evaluation, as onnxruntime refuses ``before``.
    """
    module, wanted = (module_of(m) if isinstance(m, str) else m for m in (before, after))
    made, fired = apply(pass_, module)
    assert fired == list(rules), fired
    assert_same_model(made, wanted)
    assert_same_bits(module, made, ours)
    return made


def stays(pass_: Pass, module: Module) -> None:
    """The pass leaves ``module`` alone."""
    made, fired = apply(pass_, module)
    assert made is module
    assert fired == []


def reason(pass_: Pass, module: Module, name: str) -> str:
    """Why the pass leaves the op of main that makes ``name``."""
    refusal = pass_.refusal(
        [op_of(module, name)], RefusalContext(module, Rewriter(module.main.body))
    )
    assert refusal is not None
    return refusal.reason


def op_of(module: Module, name: str) -> Op:
    """The op of main that makes the value ``name``."""
    (op,) = [op for op in module.main.body.ops if any(v.name == name for v in op.results)]
    return op


def assert_same_bits(before: Module, after: Module, ours: bool = False) -> None:
    """Both compute the same bits, by the level's evaluation and in onnxruntime, on zeros of both
    signs, infinities, NaN, subnormal and random numbers."""
    for seed in (0, 1):
        arrays = arrays_for(before, seed)
        for runner in (run,) if ours else (run, onnxruntimes):
            old, new = runner(before, arrays), runner(after, arrays)
            for a, b in zip(old, new, strict=True):
                assert same_bits(np.asarray(a), np.asarray(b)), f"{runner.__name__}: {a}, {b}"


def arrays_for(module: Module, seed: int = 0, special: bool = True) -> list[np.ndarray]:
    """Arrays for the arguments of main; a size without a number is 3."""
    given = tuple(
        Value(tensor([d if isinstance(d, int) else 3 for d in v.type.shape], v.type.dtype))
        for v in module.main.arguments
    )
    return inputs(module.with_main(Block(given)), seed, special)


def onnxruntimes(module: Module, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes, node by node as the file says."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        write(module).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [v.name for v in module.main.arguments]
    return session.run(None, dict(zip(names, arrays, strict=True)))
