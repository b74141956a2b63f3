"""Outline kernels: each unit of work becomes a launch of a kernel; equal kernels are shared."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Function, Module, Op, Value
from core_compiler.ir.conversion import Conversion
from core_compiler.ir.core import structure_key
from core_compiler.ir.target import LAUNCH
from core_compiler.kernel_ir.abi import parallel_nest
from core_compiler.kernel_ir.views import For
from core_compiler.lowering.lower import lower_group
from core_compiler.lowering.lowered import Lowered
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import CONTROL_FLOW, Pass, has_only_empty_results
from core_compiler.passes.grouping import GROUP, is_unit, make_group, members
from core_compiler.passes.layouts import is_free_view
from core_compiler.scheduling.schedules.product import extent
from core_compiler.support.errors import InternalError

#: The most elements of a short row.
FEW = 4


def is_exchange(op: Op) -> bool:
    """Return whether shards execute a launch together."""
    return op.kind == LAUNCH and any(o.kind == "core.all_reduce" for o in op.regions[0].ops)


@dataclass(frozen=True)
class OutlineKernels(Pass):
    """Turn every group into a launch of a kernel function; structurally equal kernels are shared.

    The launch keeps the group as its region: the kernel must compute it bit for bit, and checks
    evaluate it.  Kernels are generic in sizes, so the many convolutions of a network share a few
    functions.  If all results are empty there is nothing to compute: the results are constants.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"no_composites", "tensor_ops"})
    ensures = frozenset({"kernels", "plain_kernels"})
    invalidates = frozenset({"tensor_ops"})

    @override
    def run(self, module, context):
        library = _Library(module)
        module = module.with_main(self._outlined(module.main.body, "main", library, context))
        return module.with_(functions={**module.functions, **library.functions})

    def _outlined(self, block: Block, name: str, library: _Library, context) -> Block:
        out = Conversion(block, context.rewrites, name)
        for op in block.ops:
            viewed = is_free_view(op) and op.operands[0] in library.constants
            if op.kind == "core.constant" or viewed:
                library.constants.update(op.results)
        for op in block.ops:
            claimed = context.claims(op)
            if op.kind in CONTROL_FLOW and not claimed:
                inside = f"{name}/{op.kind}"
                regions = [self._outlined(r, inside, library, context) for r in op.regions]
                values = {v: v for v in op.results}
                out.replace(op, [op.with_(regions=regions)], values, rule="a loop of launches")
                continue
            if not is_unit(op) and not claimed:
                out.keep(op)
                continue
            if has_only_empty_results(op):
                made = [library.empty(v) for v in op.results]
                out.replace(op, made, {v: v for v in op.results}, rule="no elements")
                continue
            group = op if op.kind == GROUP else make_group([op], op.results)
            lowered, kernel = library.lower(group, context.target.name if claimed else "")
            attributes = {"kernel": kernel, "arguments": lowered.arguments}
            if lowered.over:
                attributes["over"] = lowered.over
            if claimed:
                attributes["target"] = context.target.name
            launch = Op(LAUNCH, group.operands, group.results, attributes, group.regions)
            values = {v: v for v in op.results}
            out.replace(op, [launch], values, rule="outline a kernel", note=kernel)
        return out.finish(block.outputs)


class _Library:
    """The kernel functions by structure, with descriptive names, numbered in program order."""

    def __init__(self, module: Module):
        self.weights = module.weights
        self.functions: dict[str, Function] = {}
        self.by_structure: dict[str, str] = {}
        self.by_group: dict[str, tuple[Lowered, str]] = {}
        self.constants: set = set()
        self.used_names = set(module.functions)

    def empty(self, value: Value) -> Op:
        """Return the constant of an empty ``value``."""
        array = np.empty(value.type.shape, value.type.dtype.numpy)
        return Op("core.constant", (), (value,), {"value": self.weights.add(array)})

    def lower(self, group: Op, target: str = "") -> tuple[Lowered, str]:
        """Return the lowered group and its kernel's name; equal groups are lowered once.

        ``target`` names the target that claims it (its kernels carry the name), "" for the host.
        """
        constant_operands = tuple(i for i, v in enumerate(group.operands) if v in self.constants)
        block = group.regions[0]
        key = structure_key(Module({"group": Function("group", block)})) + repr(
            (constant_operands, target)
        )
        if key not in self.by_group:
            lowered = lower_group(group)
            function = _marked(lowered, group, constant_operands)
            if target:
                function = function.with_(attributes={**function.attributes, "target": target})
            self.by_group[key] = lowered, self.intern(lowered, function, group)
        return self.by_group[key]

    def intern(self, lowered: Lowered, function: Function, group: Op) -> str:
        """Return the name of an equal kernel, or a new one."""
        key = structure_key(Module({"kernel": function.with_(name="kernel")}))
        key += repr([function.attributes.get(n) for n in ("constants", "target")])
        key += repr(_has_short_rows(lowered))
        known = self.by_structure.get(key)
        if known is not None:
            return known
        name = unused_name("_".join(name_words(group)) or "copy", self.used_names)
        self.used_names.add(name)
        self.by_structure[key] = name
        self.functions[name] = function.with_(name=name)
        if self.functions[name].level != "kernel":
            raise InternalError(f"{name} is not at the kernel level")
        return name


def unused_name(stem: str, used: Collection[str]) -> str:
    """Return ``stem``, or ``stem_2``, ``stem_3``...: the first one that is not used."""
    names = (stem if count == 1 else f"{stem}_{count}" for count in itertools.count(1))
    return next(name for name in names if name not in used)


def _has_short_rows(lowered: Lowered) -> bool:
    """Return whether rows of an elementwise kernel are much shorter than vectors (colours).

    They run otherwise than long rows, so that one schedule does not serve both.
    """
    function = lowered.function
    nest = parallel_nest(function) if function.attributes.get("family") == "elementwise" else []
    return bool(nest) and extent(function, (For.of(nest[-1]).name,), lowered.sizes) <= FEW


def _marked(lowered: Lowered, group: Op, constant_operands: tuple[int, ...]) -> Function:
    """Mark which buffers of a product's kernel are constants (their layout may be chosen)."""
    function = lowered.function
    if function.attributes.get("family") not in ("contraction", "convolution"):
        return function
    positions = tuple(
        position
        for position, (kind, number) in enumerate(lowered.buffers)
        if kind == "operand"
        and number in constant_operands
        and group.operands[number].type.rank > 1
    )
    return function.with_(attributes={**function.attributes, "constants": positions})


def name_words(group: Op, most: int = 4) -> list[str]:
    """Return the words of a kernel's name: its heaviest ops with counts, in program order."""
    computing = [
        op
        for op in members(group)
        if op.operands and op.kind != "core.cast" and not has_trait(op, "shape_only")
    ]
    words = {op.kind.split(".", 1)[1]: op for op in computing or members(group)[-1:]}
    heaviest = [
        w for w, op in words.items() if has_trait(op, "contraction") or w.startswith("reduce")
    ]
    rest = [w for w in words if w not in heaviest]
    kept = set((heaviest + rest)[:most])
    return [w for w in words if w in kept]
