"""Validation of an exported program's JSON before torch's deserialiser reads it.

Torch turns strings of it into code: symbolic sizes by ``sympify`` (``eval``), tree specs by
importing modules, names by generating a Python function.  So every string must have the form that
its position allows; strings that could name anything else are rejected, and unneeded ones are
removed.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from core_compiler.support.torch_operators import DIVIDES, library


class Unsafe(Exception):
    """The program needs a feature that requires trust; the message names it."""


_WORD = re.compile(r"^[A-Za-z0-9_.]{0,1000}$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,1000}$")
_SYMBOL = re.compile(r"^(s|u|zf|zuf)[0-9]{1,9}$")
_OPERATOR = re.compile(r"^torch\.ops\.([A-Za-z]\w*)\.([A-Za-z_]\w*)\.([A-Za-z]\w*)$")
_FLOAT = re.compile(r"^(-?Infinity|NaN)$")

#: Positions whose strings are only displayed or passed to an op as a string.
_FREE = frozenset(
    {"as_string", "as_strings", "custom", "stack_trace", "nn_module_stack", "torch_version"}
)
#: Positions whose strings become names in generated code.
_NAMES = frozenset({"name", "as_name", "user_input_name"})
#: Features without a safe reading: subgraphs, script objects, operators as values.
_REFUSED = frozenset(
    {"as_graph", "as_custom_obj", "as_operator", "custom_obj", "token", "as_string_to_argument"}
)

_PLAIN_TARGETS = frozenset(
    [f"_operator.{n}" for n in ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos",
                                "getitem", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_")]
    + [f"math.{n}" for n in ("ceil", "floor", "trunc", "sqrt")]
    + [f"torch.sym_{n}" for n in ("max", "min", "int", "float", "ite", "not", "sqrt", "sum")]
    + ["torch._sym_sqrt"]
)  # fmt: skip

_FUNCTIONS = frozenset(
    {
        "FloorDiv",
        "ModularIndexing",
        "Where",
        "PythonMod",
        "Mod",
        "CleanDiv",
        "CeilToInt",
        "FloorToInt",
        "CeilDiv",
        "FloatTrueDiv",
        "IntTrueDiv",
        "TruncToFloat",
        "TruncToInt",
        "RoundToInt",
        "ToFloat",
        "Identity",
        "Integer",
        "Float",
        "Add",
        "Mul",
        "Max",
        "Min",
        "Eq",
        "Ne",
        "Lt",
        "Le",
        "Gt",
        "Ge",
        # sympy's names of relation classes when it prints one.
        "Equality",
        "Unequality",
        "StrictLessThan",
        "LessThan",
        "StrictGreaterThan",
        "GreaterThan",
        "And",
        "Or",
        "Not",
    }
)

_TREES = frozenset(
    {
        "builtins.tuple",
        "builtins.list",
        "builtins.dict",
        "builtins.NoneType",
        "collections.OrderedDict",
        None,
    }
)


def checked(described: Any) -> dict[str, Any]:
    """Return a copy of the description that contains nothing that torch would execute.

    Raise :class:`Unsafe` if that is not possible.
    """
    if not isinstance(described, dict) or not isinstance(described.get("graph_module"), dict):
        raise Unsafe("it has no program in a known format")
    module = dict(described["graph_module"])
    module["module_call_graph"] = [
        _root_call(e)
        for e in _list(module.get("module_call_graph"))
        if isinstance(e, dict) and e.get("fqn") == ""
    ]
    module["metadata"], module["treespec_namedtuple_fields"] = {}, {}
    graph = module.get("graph")
    if not isinstance(graph, dict):
        raise Unsafe("it has no graph")
    graph = {**graph, "nodes": [_node(n) for n in _list(graph.get("nodes"))]}
    found = {**described, "graph_module": {**module, "graph": graph}, "guards_code": []}
    return _walk(found, "")


def _list(held: Any) -> list:
    if not isinstance(held, list):
        raise Unsafe("its graph is not in a known format")
    return held


def _node(node: Any) -> dict:
    """Return a node with a known op and only the metadata that is displayed."""
    if not isinstance(node, dict) or not isinstance(node.get("target"), str):
        raise Unsafe("a node has no op")
    _check_target(node["target"])
    metadata = node.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kept = {k: v for k, v in metadata.items() if k in ("stack_trace", "nn_module_stack")}
    if metadata.get("custom") == json.dumps(DIVIDES):
        kept["custom"] = json.dumps(DIVIDES)
    return {**node, "metadata": kept}


def _check_target(target: str) -> None:
    if target in _PLAIN_TARGETS:
        return
    match = _OPERATOR.match(target)
    if match is None:
        raise Unsafe(f"it calls {target[:80]!r}, which is not an operator")
    import torch

    space, packet, overload = match.groups()
    found = getattr(getattr(library(space), packet, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise Unsafe(f"it calls {target[:80]!r}, which is not in this version of torch")


def _root_call(entry: Mapping) -> dict:
    """Return the signature of the whole program, with tree specs of plain containers only."""
    signature = entry.get("signature")
    if not isinstance(signature, dict):
        return {"fqn": "", "signature": None}
    for side in ("in_spec", "out_spec"):
        _check_tree(signature.get(side))
    return {"fqn": "", "signature": dict(signature)}


def _check_tree(text: Any) -> None:
    try:
        _, root = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise Unsafe("a tree specification cannot be parsed") from None
    stack = [root]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict) or node.get("type") not in _TREES:
            kind = node.get("type") if isinstance(node, dict) else node
            raise Unsafe(f"inputs or outputs are in containers of type {str(kind)[:80]!r}")
        stack += _list(node.get("children_spec"))


def _walk(held: Any, place: str) -> Any:
    """Return a copy with every string checked for its position; devices become the CPU."""
    if isinstance(held, dict):
        refused = _REFUSED & held.keys()
        if refused:
            raise Unsafe(f"it has {sorted(refused)[0].removeprefix('as_')} values")
        if place in ("device", "as_device"):
            return {"type": "cpu", "index": None}
        return {_key(k, place): _walk(v, k) for k, v in held.items()}
    if isinstance(held, list):
        return [_walk(v, place) for v in held]
    if isinstance(held, str):
        _check_string(held, place)
    return held


def _key(key: str, place: str) -> str:
    pattern = _NAME if place == "tensor_values" else _WORD
    if not pattern.match(key):
        raise Unsafe(f"it has an invalid name {key[:80]!r}")
    return key


def _check_string(text: str, place: str) -> None:
    if place in _FREE or place in ("in_spec", "out_spec", "target"):
        return
    if place == "expr_str":
        _check_expression(text)
    elif place == "as_float" and _FLOAT.match(text):
        return
    elif place in _NAMES:
        if text and (not _NAME.match(text) or keyword.iskeyword(text)):
            raise Unsafe(f"it has an invalid name {text[:80]!r}")
    elif not _WORD.match(text):
        raise Unsafe(f"it has an invalid {place} {text[:80]!r}")


_SYNTAX = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Load,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.USub,
    ast.UAdd,
    ast.cmpop,
)
#: The allowed assumptions of a sympy symbol.
_ASSUMPTIONS = frozenset({"positive", "nonnegative", "integer", "real"})


def _check_expression(text: str) -> None:
    """Check a symbolic size: symbols, numbers, arithmetic, and a few functions of bounded cost."""
    tree = None
    if len(text) <= 2000:
        with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
            tree = ast.parse(text, mode="eval").body
    if tree is None or not _harmless(tree):
        raise Unsafe(f"it has an invalid size {text[:80]!r}")


def _harmless(node: ast.AST) -> bool:
    """Return whether evaluating the expression only builds a symbolic number of similar size."""
    if isinstance(node, ast.Name):
        return bool(_SYMBOL.match(node.id))
    if isinstance(node, ast.Constant):
        number = node.value
        return isinstance(number, int | float | bool) and abs(number) < 1 << 63
    if isinstance(node, ast.Call):
        return _harmless_call(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_symbol(node.left) and _small(node.right)
    return isinstance(node, _SYNTAX) and all(map(_harmless, ast.iter_child_nodes(node)))


def _harmless_call(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Name):
        return False
    name, arguments = node.func.id, node.args
    if name == "Symbol":
        return _is_symbol(node)
    if node.keywords:
        return False
    if name == "Pow":
        return len(arguments) == 2 and _is_symbol(arguments[0]) and _small(arguments[1])
    return name in _FUNCTIONS and all(map(_harmless, arguments))


def _is_symbol(node: ast.AST) -> bool:
    """Return whether a node is ``s0`` or ``Symbol('s0', positive=True)``."""
    if isinstance(node, ast.Name):
        return bool(_SYMBOL.match(node.id))
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Symbol"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and bool(_SYMBOL.match(node.args[0].value))
        and all(k.arg in _ASSUMPTIONS and isinstance(k.value, ast.Constant) for k in node.keywords)
    )


def _small(node: ast.AST) -> bool:
    """Return whether a node is an exponent from 0 to 8 (``3`` or ``Integer(3)``)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Integer":
        node = node.args[0] if len(node.args) == 1 and not node.keywords else node
    return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= 8
