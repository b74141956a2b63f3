"""Generated source to object code: Numba types and lowers it, LLVM optimises it once.

The object defines one symbol, ``kernel(args, lo, hi, scratch)`` in the C calling convention, and
needs nothing of Numba's run time: it loads with llvmlite alone (``runtime.loader``).
"""
from __future__ import annotations

import ast
import builtins
import functools
import linecache
import time
from dataclasses import dataclass, field

import llvmlite.binding as llvm
import numba
from numba.core import compiler, types
from numba.core.registry import cpu_target

from core_compiler.codegen.cpu.names import Namespace
from core_compiler.codegen.cpu.source import SYMBOL, Source
from core_compiler.kernels._numba import FLAGS

_SIGNATURE = (types.int64,) * 4


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """``object``: an object file that defines ``symbol``.  ``llvm_ir`` and ``assembly`` are what the
    optimiser and the code generator made; ``seconds`` says where the time went."""

    name: str
    symbol: str
    object: bytes
    llvm_ir: str
    assembly: str
    lines: list | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def compile_source(source: str | Source, name: str = "") -> CompiledKernel:
    """Compile the text of a generated module (see :mod:`source`)."""
    if isinstance(source, Source):
        name, lines, source = source.name, [list(row) for row in source.lines], source.text
    else:
        lines = None
    clock = [time.perf_counter()]
    function = _function(source, name or SYMBOL)
    flags = compiler.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model, flags.nrt = FLAGS["error_model"], False
    with _UnoptimisedLibraries():
        result = compiler.compile_extra(
            cpu_target.typing_context, cpu_target.target_context, function, _SIGNATURE, types.none,
            flags, {},
        )  # fmt: skip
        text = str(result.library._final_module)
    clock.append(time.perf_counter())
    module = _entry(text, result.fndesc.llvm_func_name)
    _optimise(module)
    clock.append(time.perf_counter())
    machine = _target_machine()
    code = machine.emit_object(module)
    clock.append(time.perf_counter())
    seconds = dict(zip(("numba", "llvm", "emit"), (b - a for a, b in zip(clock, clock[1:])), strict=True))
    return CompiledKernel(
        name, SYMBOL, code, str(module), machine.emit_assembly(module), lines, seconds
    )


def _function(source: str, name: str):
    """The entry of a generated module, its globals bound."""
    tree = ast.parse(source)
    facts = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    namespace = Namespace(facts["NAME"], facts["BUFFERS"])
    made = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    local = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - local - made
    bound = {n: namespace[n] for n in sorted(used) if n != "compiled"}
    bound["compiled"] = functools.partial(numba.njit, **FLAGS)()
    bound["__builtins__"] = builtins
    file = f"<kernel {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), bound)
    return bound[SYMBOL]


class _UnoptimisedLibraries:
    """Numba's own optimisation passes off: the module is optimised once, when it is whole."""

    def __enter__(self):
        from numba.core import codegen

        self._kept = codegen.CPUCodeLibrary._optimize_functions, \
            codegen.CPUCodeLibrary._optimize_final_module
        codegen.CPUCodeLibrary._optimize_functions = lambda self, module: None
        codegen.CPUCodeLibrary._optimize_final_module = lambda self: None

    def __exit__(self, *_):
        from numba.core import codegen

        library = codegen.CPUCodeLibrary
        library._optimize_functions, library._optimize_final_module = self._kept


_ENTRY = """
declare i32 @"{name}"(ptr, ptr, i64, i64, i64, i64)
define void @{symbol}(i64 %args, i64 %lo, i64 %hi, i64 %scratch) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{name}"(ptr %result, ptr %error, i64 %args, i64 %lo, i64 %hi, i64 %scratch)
  ret void
}}
"""


def _entry(text: str, name: str) -> llvm.ModuleRef:
    """The module with a C entry, everything else internal."""
    module = llvm.parse_assembly(text)
    entry = llvm.parse_assembly(_ENTRY.format(name=name, symbol=SYMBOL))
    module.link_in(entry)
    for function in module.functions:
        if not function.is_declaration and function.name != SYMBOL:
            function.linkage = "internal"
            if function.name == name:
                function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    module.verify()
    return module


def _optimise(module: llvm.ModuleRef) -> None:
    machine = _target_machine()
    module.triple = machine.triple
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)


@functools.cache
def _target_machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3,
        reloc="pic", codemodel="jitdefault", jit=True,
    )  # fmt: skip
