"""Conversion of a model to another version of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.frontends.base import Unsupported
from core_compiler.ir import FrontendNode, Module, Op, Value
from core_compiler.onnx_level.conversion import Converter
from core_compiler.onnx_level.dialect import LEVEL, domain_and_type, newest
from core_compiler.onnx_level.passes.fold_nodes import FoldNodes
from core_compiler.onnx_level.passes.infer_shapes import InferShapes
from core_compiler.passes.base import Pass, PassContext
from core_compiler.support.errors import UserError

#: The oldest supported target: in earlier versions, each op specifies how to broadcast.
OLDEST = 7


@dataclass(frozen=True)
class ConvertVersion(Pass):
    """Convert every op to another version of ONNX (``to``; 0 leaves the model unchanged)."""

    to: int = 0

    half = "source"
    exact = False
    tolerance = "an op that the version lacks is replaced by its definition"
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        opsets = dict(module.main.attributes["opsets"])
        old = opsets.get("", self.to)
        if self.to in (0, old):
            return module
        self._check(old)
        module, unsupported = converted(module, self.to, context)
        if unsupported:
            raise self._unsupported_error(unsupported)
        return _declare_version(module, self.to, context)

    def _check(self, old: int) -> None:
        for version in (self.to, old):
            if not OLDEST <= version <= newest():
                raise UserError(
                    f"unsupported ONNX version {version}",
                    "convert_version.to",
                    f"choose {OLDEST} to {newest()}"
                    if version == self.to
                    else f"convert models of version {OLDEST} or newer",
                )

    def _unsupported_error(self, unsupported) -> UserError:
        found = []
        for op, reason in unsupported:
            nodes = op.origin.nodes() if op.origin is not None else ()
            node = nodes[0] if nodes else FrontendNode("", op.kind)
            found.append(Unsupported(domain_and_type(op)[1], reason, node))
        groups: dict[tuple[str, str], list[str]] = {}
        for item in found:
            place = f"{item.node.file}:{item.node.line}" if item.node.file else item.node.name
            groups.setdefault((item.kind, item.reason), []).append(place)
        parts = [
            f"{kind} ({reason}; {', '.join(places[:3])}"
            + (f" and {len(places) - 3} more)" if len(places) > 3 else ")")
            for (kind, reason), places in groups.items()
        ]
        count = len(unsupported)
        return UserError(
            f"{count} node{'s' if count > 1 else ''} not supported by version {self.to}: "
            + "; ".join(parts),
            "convert_version",
            "choose a newer version",
        )


def converted(module: Module, to: int, context: PassContext) -> tuple[Module, Sequence]:
    """Return ``module`` converted to version ``to``, and the unsupported ops with reasons."""
    module = _with_known_types(module, context)
    converter = Converter(to, module.weights, _producer_lookup(module))
    prepared = context.rewrite(module, converter.define, LEVEL)
    if prepared is not module:  # for the nodes that the definitions add
        prepared = _with_known_types(prepared, context)
    converter.outer = _producer_lookup(prepared)
    return context.rewrite(prepared, converter.convert, LEVEL), converter.unsupported


def _with_known_types(module: Module, context: PassContext) -> Module:
    """Return ``module`` with inferred types and folded constants, which the adapters depend on."""
    return FoldNodes().run(InferShapes().run(module, context), context)


def _producer_lookup(module: Module) -> Callable[[Value], Op | None]:
    return {v: op for op in module.walk() for v in op.results}.get


#: The format versions from which on weights need not be inputs, and local functions exist.
_SEPARATE_WEIGHTS_SINCE, _FUNCTIONS_SINCE = 4, 8


def _declare_version(module: Module, version: int, context: PassContext) -> Module:
    """Return ``module`` with this version declared, and a format version that supports it.

    An older version also selects an older format, which older runtimes read, as far as the rest of
    the model allows.
    """
    import onnx

    for function in module.functions.values():
        before = dict(function.attributes["opsets"])
        opsets = {**before, "": version}
        facts = {**function.attributes, "opsets": tuple(sorted(opsets.items()))}
        if "ir_version" in facts:
            imports = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
            needed = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
            old_ir_version = facts["ir_version"]
            if version < before.get("", version):
                minimum = _FUNCTIONS_SINCE if len(module.functions) > 1 else _SEPARATE_WEIGHTS_SINCE
                facts["ir_version"] = min(old_ir_version, max(needed, minimum))
            else:
                facts["ir_version"] = max(old_ir_version, needed)
        module = context.with_function(
            module, function.with_(attributes=facts), rule="the version of the model"
        )
    return module
