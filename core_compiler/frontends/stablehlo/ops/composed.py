"""CHLO ops without a translation, expanded by StableHLO's own legalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core_compiler.frontends.stablehlo.table import Context, NotSupported

#: The reason why an op has no translation, if there is more to say.
REFUSED = {
    "stablehlo.rng": "random numbers without a seed; draw them with jax.random",
    "stablehlo.rng_bit_generator": "its numbers depend on the machine; draw them with jax.random",
}
_PIPELINE = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def expansion(
    context: Any, name: str, operands: Sequence[str], results: Sequence[str], attributes: str = ""
) -> Any:
    """Return a module whose only function is the legalised op ``name`` on values of these types.

    Raise NotSupported if legalisation does not change it.
    """
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir.dialects import stablehlo

    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(operands))
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    answers = ", ".join(f"%r#{i}" for i in range(len(results)))
    given, kinds = ", ".join(operands), ", ".join(results)
    text = (
        f"func.func @main({arguments}) -> ({kinds}) {{\n"
        f'  %r:{len(results)} = "{name}"({names}) {{{attributes}}} : ({given}) -> ({kinds})\n'
        f"  return {answers} : {kinds}\n}}"
    )
    stablehlo.register_stablehlo_passes()
    try:
        module = ir.Module.parse(text, context)
        passmanager.PassManager.parse(_PIPELINE, context).run(module.operation)
    except Exception as problem:  # any exception of the bindings: it cannot be expanded
        raise NotSupported(f"no translation ({str(problem).splitlines()[0][:120]})") from None
    if any(each.operation.name == name for each in block_of(module).operations):
        raise NotSupported("no translation")
    return module


def block_of(module: Any) -> Any:
    """Return the body of a module's only function."""
    (function,) = module.body.operations
    (block,) = function.regions[0].blocks
    return block


def composed(b: Context) -> Callable:
    """Return the handler of an op without a translation, which inlines its expansion.

    Raise NotSupported if there is none.
    """
    operation = b.operation
    if not operation.name.startswith("chlo.") or operation.regions:
        raise NotSupported(REFUSED.get(operation.name, "no translation"))
    held = ", ".join(f"{each} = {operation.attributes[each]}" for each in operation.attributes)
    operands, results = (
        [str(v.type) for v in values] for values in (operation.operands, operation.results)
    )
    module = expansion(operation.context, operation.name, operands, results, held)

    def handler(b: Context, *given):
        b.importer.take(b)
        return b.importer.inline_block(module, block_of(module), given, b.node)

    return handler
