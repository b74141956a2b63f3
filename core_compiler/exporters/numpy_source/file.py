"""The complete file: imports, weights, the helpers that are called, main, and the script part."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from core_compiler import __version__
from core_compiler.exporters.base import entry
from core_compiler.exporters.numpy_source.exporter import Writer
from core_compiler.exporters.numpy_source.text import (
    dtype_text,
    is_native,
    plain,
    quoted,
    sequence,
)
from core_compiler.ir import Block, Module, Value, dtype

# -- helpers ---------------------------------------------------------------------------------------


@cache
def _helpers() -> Mapping[str, str]:
    """Return the source of each helper, in the order of their file."""
    from core_compiler.exporters.numpy_source import helpers

    text = inspect.getsource(helpers)
    found = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    lines = text.splitlines()
    return {n.name: "\n".join(lines[n.lineno - 1 : n.end_lineno]) for n in found}


def _with_callees(wanted: Sequence[str]) -> list[str]:
    """Return the sources of helpers and of those that they call, in the order of their file."""
    sources, needed, work = _helpers(), set(), list(wanted)
    while work:
        name = work.pop()
        if name not in needed:
            needed.add(name)
            work += [
                n.id
                for n in ast.walk(ast.parse(sources[name]))
                if isinstance(n, ast.Name) and n.id in sources
            ]
    return [text for name, text in sources.items() if name in needed]


# -- the file --------------------------------------------------------------------------------------


def to_source(
    module: Module, inputs: Sequence[str], outputs: Sequence[str], name: str
) -> tuple[str, dict[str, np.ndarray]]:
    """Return (text of the file, weights by name)."""
    body = entry(module, inputs, outputs)
    writer = Writer(module, _helpers())
    arguments = writer.function(body, inputs)
    main = "\n".join(
        [
            '@np.errstate(all="ignore")',
            f"def main({', '.join(arguments)}):",
            f'    """{_signature(body, arguments, outputs)}"""',
            *(line for s in writer.statements for line in s.lines()),
        ]
    )
    helpers = _with_callees([*writer.helpers])
    parts = [*helpers, main, _script_part(body, arguments, outputs)]
    text = "\n\n\n".join([_head(name, writer.weights, parts), *parts]) + "\n"
    return text, writer.weights


def _signature(body: Block, arguments: Sequence[str], outputs: Sequence[str]) -> str:
    def describe(name: str, value: Value) -> str:
        return f"{plain(name)} {value.type.dtype.numpy.name} {list(value.type.shape)}"

    given = ", ".join(map(describe, arguments, body.arguments)) or "nothing"
    return f"{given} -> {', '.join(map(describe, outputs, body.outputs))}"


def _head(name: str, weights: Mapping[str, np.ndarray], parts: Sequence[str]) -> str:
    """Return the file's docstring, its imports, and its weights."""
    title = f"{plain(name)}: a" if name else "A"
    by = f"written by Compiler Workbench {__version__}"
    lines = [f'"""{title} tensor program in NumPy 2, {by}."""', ""]
    narrow = {n: dtype(a.dtype) for n, a in weights.items() if not is_native(dtype(a.dtype))}
    text = "\n".join(parts)
    lines += ["import math", ""] if "math." in text else []
    lines += ["import ml_dtypes"] if narrow or "ml_dtypes." in text else []
    lines += ["import numpy as np"]
    if weights:
        lines += ["", 'W = dict(np.load(__file__.removesuffix(".py") + ".npz"))']
    for weight, kind in narrow.items():
        lines.append(f"W[{quoted(weight)}] = W[{quoted(weight)}].view({dtype_text(kind)})")
    return "\n".join(lines)


def _script_part(body: Block, arguments: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the code that ``python file.py`` runs: main on random values."""
    lines = ['if __name__ == "__main__":', "    rng = np.random.default_rng(0)"]
    for name, value in zip(arguments, body.arguments, strict=True):
        shape, kind = sequence(value.type.shape), value.type.dtype
        if kind.is_float:
            made = f"np.asarray(rng.standard_normal({shape})).astype({dtype_text(kind)})"
        else:
            made = f"np.{'ones' if kind.kind == 'bool' else 'zeros'}({shape}, {dtype_text(kind)})"
        lines.append(f"    {name} = {made}")
    lines.append(f"    results = main({', '.join(arguments)})")
    lines.append(f"    for name, result in zip({sequence(map(quoted, outputs))}, results):")
    lines.append("        print(name, result.dtype, list(result.shape))")
    return "\n".join(lines)
