"""JAX functions, traced and lowered by JAX itself, then imported as StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from io import BytesIO
from typing import Any

import numpy as np

from core_compiler.frontends.base import Imported
from core_compiler.frontends.stablehlo.nodes import with_results
from core_compiler.frontends.stablehlo.reading import need_jax
from core_compiler.support.errors import UserError, raised_at


def import_function(
    function: Callable,
    arguments: Sequence[Any],
    name: str = "function",
    weights: Mapping[str, np.ndarray] | None = None,
    inputs_named: Sequence[str] = (),
    outputs_named: Sequence[str] = (),
    statistics: Collection[str] = (),
    state: Mapping[str, np.ndarray] | None = None,
) -> Imported:
    """Import a JAX function: anything that ``jax.jit`` traces.

    ``arguments``  example arguments, trees of arrays (or of ``jax.ShapeDtypeStruct``).  Each leaf
                   becomes an argument of the module, named by its path (``params['w']``), in the
                   order of ``jax.tree.leaves``; the leaves of the result are named in the same way.
    ``weights``    the first leaves by name: they become constants instead of arguments; those
                   named in ``statistics`` are not parameters that training changes.
    ``state``      the last leaves by name, whose next values are the result's last leaves.
    ``inputs_named``, ``outputs_named``  names of the other leaves, instead of their paths.

    Raise UserError if the function cannot be traced, or contains an op without a translation.
    """
    need_jax()
    import jax

    from core_compiler.frontends.stablehlo.importer import import_program

    try:
        program = _lowered(jax.jit(function, keep_unused=True), arguments, jax)
    except Exception as problem:  # raised by the user's code
        raise UserError(
            f"jax cannot trace it: {raised_at(problem)}",
            name,
            "make sure that jax.jit(function)(*arguments) runs",
        ) from None
    held = dict(enumerate((weights or {}).items()))
    parts = dict(state or {})
    leaf_names = _names(function, arguments, jax)
    named = inputs_named or leaf_names[len(held) : len(leaf_names) - len(parts)]
    imported = import_program(
        program,
        name=name,
        read_files=True,
        inputs_named=[*named, *parts],
        outputs_named=outputs_named,
        weights=held,
        statistics=statistics,
    )
    facts = {**imported.facts, "frontend": "jax", "jax": version("jax")}
    nodes = None if parts else imported.nodes
    if not held:
        nodes = with_results(nodes, "jax", on_leaves(function, arguments))
    return _with_state(replace(imported, facts=facts, nodes=nodes), parts)


def _with_state(imported: Imported, state: Mapping[str, np.ndarray]) -> Imported:
    """Return a model whose last arguments are ``state``, and last results their next values."""
    if not state:
        return imported
    main = imported.module.main
    places = len(main.outputs) - len(state), len(main.arguments) - len(state)
    aliases = tuple((places[0] + i, places[1] + i) for i in range(len(state)))
    outputs = (*imported.outputs[: places[0]], *(f"{name} (next)" for name in state))
    return replace(
        imported,
        module=imported.module.with_function(main.with_(attributes={"aliases": aliases})),
        outputs=outputs,
        facts={**imported.facts, "state": len(state)},
        state=tuple(state.values()),
    )


def _lowered(function: Any, arguments: Sequence[Any], jax: Any) -> bytes:
    """Return the jitted function as bytecode (``keep_unused``: unused arguments are kept).

    CHLO's ops (erf, erfc..) are preserved; ``jax.export`` expands them to polynomials, so it is
    only used for symbolic sizes.
    """
    shapes = [getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(tuple(arguments))]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        from jax import export

        return export.export(function, platforms=["cpu"])(*arguments).mlir_module_serialized
    lowered = function.trace(*arguments).lower(lowering_platforms=("cpu",))
    held = BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(held)
    return held.getvalue()


def _names(function: Callable, arguments: Sequence[Any], jax: Any) -> list[str]:
    """Return the paths of the leaves, with the parameters' own names if available."""
    import inspect

    try:
        parameters = [p.name for p in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    made = []
    for position, argument in enumerate(arguments):
        own = parameters[position] if position < len(parameters) else f"input{position}"
        made += [
            own + jax.tree_util.keystr(path)
            for path, _ in jax.tree_util.tree_leaves_with_path(argument)
        ]
    return made


def leaves(arguments: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Return the arrays of a tree in the order of the module's arguments, in JAX's dtypes.

    A ``jax.ShapeDtypeStruct`` yields zeros, a typed key the words of the key.
    """
    import jax

    def array(leaf: Any) -> np.ndarray:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return np.zeros(leaf.shape, leaf.dtype)
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(jax.numpy.asarray(leaf))

    return tuple(map(array, jax.tree.leaves(tuple(arguments))))


def refilled(arguments: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], Sequence[Any]]:
    """Return a function that replaces the leaves of a tree; those of the same shape stay.

    A number of Python thus keeps its weak type, a typed key its type.
    """
    import jax

    own, tree = jax.tree.flatten(tuple(arguments))
    shapes = [array.shape for array in leaves(arguments)]

    def refill(arrays: Sequence[np.ndarray]) -> Sequence[Any]:
        rows = zip(own, shapes, arrays, strict=True)
        return jax.tree.unflatten(tree, [o if a.shape == s else a for o, s, a in rows])

    return refill


def on_leaves(function: Callable, arguments: Sequence[Any]) -> Callable[..., tuple]:
    """Compile ``function`` by JAX, from the leaves of its arguments to those of its result.

    Leaves are arrays.
    """
    import jax

    tree = jax.tree.structure(tuple(arguments))
    compiled = jax.jit(function)

    def run(*arrays):
        made = compiled(*jax.tree.unflatten(tree, arrays))
        return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(made))

    return run
