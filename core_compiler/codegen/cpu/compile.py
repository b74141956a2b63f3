"""Compilation of generated source to object code by Numba, with one LLVM optimisation run.

The object defines one symbol, ``kernel(args, lo, hi, scratch)`` in the C calling convention, and
does not depend on Numba's run time: llvmlite alone can load it (``runtime.loader``).
"""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import llvmlite.binding as llvm
from numba.core import codegen, compiler, transforms, typed_passes, types, untyped_passes
from numba.core import ir as numba_ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.registry import cpu_target

from core_compiler.codegen.cpu import debug_lines
from core_compiler.codegen.cpu.names import Namespace, takes_literals
from core_compiler.codegen.cpu.repeated import caches_enabled
from core_compiler.codegen.entry import entry_of
from core_compiler.codegen.source import SYMBOL, Source
from core_compiler.numerics.jit import FLAGS

_SIGNATURE = (types.int64,) * 4


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """A compiled kernel.

    ``object`` is an object file that defines ``symbol``. ``intermediate`` (LLVM IR) and
    ``assembly`` are the outputs of the optimiser and the code generator; ``assembly_lines`` has
    (assembly line, source line) rows, lines from 1; ``seconds`` has the time of each step.
    """

    name: str
    symbol: str
    object: bytes
    intermediate: str
    assembly: str
    lines: list | None = None
    assembly_lines: list[tuple[int, int]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def compile_source(source: str | Source, name: str = "") -> CompiledKernel:
    """Compile the text of a generated module (see :mod:`source`)."""
    lines = None
    if isinstance(source, Source):
        name, lines, source = source.name, [list(row) for row in source.lines], source.text
    clock = [time.perf_counter()]
    with global_compiler_lock, _without_optimisation(), caches_enabled():
        module = _lowered(source, name or SYMBOL)
    clock.append(time.perf_counter())
    _optimise(module)
    clock.append(time.perf_counter())
    machine = _target_machine()
    listing = machine.emit_assembly(module)
    code = machine.emit_object(_assembled(listing, machine.triple))
    clock.append(time.perf_counter())
    spent = (b - a for a, b in pairwise(clock))
    seconds = dict(zip(("numba", "llvm", "emit"), spent, strict=True))
    assembly, places = debug_lines.read(listing)
    return CompiledKernel(name, SYMBOL, code, str(module), assembly, lines, places, seconds)


def _lowered(source: str, name: str) -> llvm.ModuleRef:
    """Return the unoptimised module of a source, which exports only its entry."""
    entry = _numba_result(entry_of(source, name, Namespace)[0])
    text = debug_lines.only_lines(str(entry.library._final_module))
    module = _entry(text, entry.fndesc.llvm_func_name)
    for library in entry.library._linking_libraries:  # contract functions with loops
        module.link_in(llvm.parse_assembly(str(library._get_module_for_linking())))
    for function in module.functions:
        if not function.is_declaration and function.name != SYMBOL:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    module.verify()
    return module


def _numba_result(function):
    """Return Numba's result for the entry: its library has the unoptimised module."""
    flags = compiler.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.error_model, flags.nrt = FLAGS["error_model"], False
    # Emit lines only: with Numba's full debug information, locals would stay in memory.
    flags.debuginfo = flags.dbg_directives_only = True
    return compiler.compile_extra(
        cpu_target.typing_context,
        cpu_target.target_context,
        function,
        _SIGNATURE,
        types.none,
        flags,
        {},
        pipeline_class=_Pipeline,
    )


class _Pipeline(compiler.CompilerBase):
    """The passes of Numba that generated source needs.

    The source has no closures, tuples to unroll, lifted blocks or branches to prune, and each of
    its variables has one type.
    """

    def define_pipelines(self):
        passes = PassManager("kernel")
        for step in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            _Canonical,
            typed_passes.NopythonTypeInference,
            typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


@register_pass(mutates_CFG=True, analysis_only=False)
class _Canonical(FunctionPass):
    """Bring the blocks into canonical order, and give integers the type of other integers.

    Numba gives each number a type of its own, and would search for functions of that type. Only
    some functions need the number. Unlike Numba's pass, this one analyses no lifetimes: no value is
    counted.
    """

    _name = "canonical"

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)
        state.func_ir.generator_info = None
        assigned = [
            inst
            for block in state.func_ir.blocks.values()
            for inst in block.body
            if isinstance(inst, numba_ir.Assign)
        ]
        called = {
            a.target.name: a.value.name for a in assigned if isinstance(a.value, numba_ir.Global)
        }
        needed: set[str] = set()
        for expression in (a.value for a in assigned if isinstance(a.value, numba_ir.Expr)):
            if expression.op == "build_tuple":
                needed.update(v.name for v in expression.items)
            elif expression.op == "call" and takes_literals(called.get(expression.func.name, "")):
                needed.update(v.name for v in expression.args)
        for each in assigned:
            if isinstance(each.value, numba_ir.Const) and each.target.name not in needed:
                each.value.use_literal_type = False
        return True


@contextmanager
def _without_optimisation():
    """Disable Numba's function passes: the module is optimised once, when it is complete."""
    kept = codegen.CPUCodeLibrary._optimize_functions
    codegen.CPUCodeLibrary._optimize_functions = lambda self, module: None
    try:
        yield
    finally:
        codegen.CPUCodeLibrary._optimize_functions = kept


_ENTRY = """
declare i32 @"{name}"(ptr, ptr, i64, i64, i64, i64)
define void @{symbol}(i64 %args, i64 %lo, i64 %hi, i64 %scratch) !dbg !4 {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{name}"(ptr %result, ptr %error, i64 %args, i64 %lo, i64 %hi,
                               i64 %scratch), !dbg !6
  ret void, !dbg !6
}}
{lines}
"""


def _entry(text: str, name: str) -> llvm.ModuleRef:
    """Return the module with a C entry around Numba's function ``name``."""
    module = llvm.parse_assembly(text)
    entry = llvm.parse_assembly(_ENTRY.format(name=name, symbol=SYMBOL, lines=debug_lines.ENTRY))
    module.link_in(entry)
    module.get_function(name).add_function_attribute("alwaysinline")
    return module


def _optimise(module: llvm.ModuleRef) -> None:
    machine = _target_machine()
    module.triple = machine.triple
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)


def _assembled(listing: str, triple: str) -> llvm.ModuleRef:
    """Return a module of which LLVM's assembler makes the object file.

    Code generation, which runs once, made the listing: assembling it takes a tenth of the time.
    """
    escaped = listing.replace("\\", "\\5C").replace('"', "\\22")
    lines = "".join(f'module asm "{line}"\n' for line in escaped.splitlines())
    return llvm.parse_assembly(f'target triple = "{triple}"\n{lines}')


@functools.cache
def _target_machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
