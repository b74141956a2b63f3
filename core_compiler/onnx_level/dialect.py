"""The representation of ONNX in the IR: kinds of ops, types, and the schemas of ops.

An op carries ``onnx.since``, the version of its domain in which its definition appeared (the
schema's ``since_version``).  So each op is self-contained, and converting a model to another
version only changes the ops whose definition changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from core_compiler.frontends.onnx.reading import DTYPES, dtype_of
from core_compiler.ir import (
    Dense,
    DType,
    Module,
    Op,
    OpaqueType,
    Resource,
    TensorType,
    Type,
    opaque,
    tensor,
)
from core_compiler.ir.parser import parse_attribute, parse_type
from core_compiler.ir.types import Dim, quoted

#: The level of functions that hold ONNX nodes.
LEVEL = "onnx"
PREFIX = "onnx."
#: The names of the default domain, in files and in the IR.
DEFAULT = ("", "ai.onnx")

#: A tensor stored with the graph; ``value`` holds it.
INITIALIZER = "onnx.initializer"
#: A placeholder for an input that a node omits.
ABSENT = "onnx.absent"
#: Attributes of the op that are not attributes of the ONNX node.
SINCE, REGIONS, OVERRIDABLE, OVERLOAD = (
    "onnx.since",
    "onnx.regions",
    "onnx.overridable",
    "onnx.overload",
)

#: The type of a value that the file does not declare.
UNKNOWN = opaque("!onnx.value")
#: The type of an omitted input or output.
NOTHING = opaque("!onnx.none")
#: A size that the file does not declare; a symbolic name means the same size everywhere.
ANY_SIZE = "?"

_NUMBERS = {name: number for number, name in DTYPES.items()}
#: Element types that the compiler does not support: their values pass through this level.
_OTHERS = {8: "string", 14: "complex64", 15: "complex128"}


#: Marks an attribute that a function takes from its call: ``(REFERENCE, its name, its type)``.
REFERENCE = "@"


def is_reference(value: Any) -> bool:
    """Return whether an attribute's value is taken from the function's call."""
    return (
        isinstance(value, tuple)
        and len(value) == 3
        and value[0] == REFERENCE
        and type(value[2]) is int
    )


def kind(domain: str, op_type: str) -> str:
    """Return the op kind of a node."""
    return f"{PREFIX}{op_type}" if domain in DEFAULT else f"{PREFIX}{domain}.{op_type}"


def domain_and_type(op: Op | str) -> tuple[str, str]:
    """Return the domain and op type of a node's kind."""
    text = op if isinstance(op, str) else op.kind
    domain, _, op_type = text.removeprefix(PREFIX).rpartition(".")
    return domain, op_type


def function_name(op: Op) -> str:
    """Return the name of the function that a node calls if it exists."""
    domain, op_type = domain_and_type(op)
    overload = op.get(OVERLOAD, "")
    return f"{domain}::{op_type}" + (f":{overload}" if overload else "")


def is_node(op: Op) -> bool:
    """Return whether an op is a node of the graph (not an initializer or an omitted input)."""
    return op.kind.startswith(PREFIX) and op.kind not in (INITIALIZER, ABSENT)


@lru_cache(maxsize=4096)
def schema(domain: str, op_type: str, version: int) -> Any:
    """Return the schema of an op at a version of its domain, or None if ONNX has none."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, version, "" if domain in DEFAULT else domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=4096)
def last_version(domain: str, op_type: str, since: int) -> int:
    """Return the newest version of the domain in which the definition of ``since`` still holds."""
    last = since
    for version in range(since + 1, newest(domain) + 1):
        found = schema(domain, op_type, version)
        if found is None or found.since_version != since:
            break
        last = version
    return last


@lru_cache
def newest(domain: str = "") -> int:
    """Return the newest version of a domain in the installed onnx (1 for an unknown domain)."""
    import onnx

    spelled_ = "" if domain in DEFAULT else domain
    found = [
        s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.domain == spelled_
    ]
    return max(found, default=1) if spelled_ else onnx.defs.onnx_opset_version()


def schema_of(op: Op) -> Any:
    """Return the schema that defines an op; None for a function's op or an unknown domain."""
    since = op.get(SINCE)
    return None if since is None else schema(*domain_and_type(op), since)


def constant(op: Op | None) -> Dense | Resource | None:
    """Return the tensor of an initializer or a Constant node; None for other ops."""
    if op is None or op.kind not in (INITIALIZER, f"{PREFIX}Constant"):
        return None
    held = op.get("value")
    return held if isinstance(held, Dense | Resource) else None


def version_of(module: Module) -> int:
    """Return a module's version of the default domain."""
    return dict(module.main.attributes["opsets"]).get("", 1)


# -- types -----------------------------------------------------------------------------------------


def element_number(held: DType) -> int:
    """Return the ``TensorProto`` data type of a dtype; raise KeyError if ONNX has none."""
    return _NUMBERS[held.name]


def type_of(proto) -> Type:
    """Return the type of a ``TypeProto``, or :data:`UNKNOWN` if the IR cannot represent it."""
    which = proto.WhichOneof("value")
    if which == "tensor_type":
        return _tensor_type(proto.tensor_type)
    if which == "sequence_type":
        return opaque(f"!onnx.seq<{type_of(proto.sequence_type.elem_type)}>")
    if which == "optional_type":
        return opaque(f"!onnx.opt<{type_of(proto.optional_type.elem_type)}>")
    return UNKNOWN


def _tensor_type(held) -> Type:
    ranked = held.HasField("shape")
    shape = [_size(d) for d in held.shape.dim]
    if held.elem_type in DTYPES:
        element = dtype_of(held.elem_type)
        return tensor(shape, element) if ranked else opaque(f"!onnx.unranked<{element}>")
    if held.elem_type not in _OTHERS:
        return UNKNOWN
    sizes = ", ".join(quoted(d) if isinstance(d, str) else str(d) for d in shape)
    return opaque(f"!onnx.{_OTHERS[held.elem_type]}" + (f"<[{sizes}]>" if ranked else ""))


def _size(dim) -> int | str:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else ANY_SIZE
    return dim.dim_param or ANY_SIZE


def proto_of(held: Type):
    """Return the ``TypeProto`` of a type, or None if the type is unknown."""
    import onnx

    made = onnx.TypeProto()
    if isinstance(held, TensorType):
        _shaped(made.tensor_type, _NUMBERS[held.dtype.name], held.shape)
        return made
    if not isinstance(held, OpaqueType) or held in (UNKNOWN, NOTHING):
        return None
    name, _, inner = held.text.removesuffix(">").partition("<")
    if name == "!onnx.unranked":
        made.tensor_type.elem_type = _NUMBERS[inner]
        return made
    other = next((n for n, text in _OTHERS.items() if name == f"!onnx.{text}"), None)
    if other is not None:
        shape: Any = parse_attribute(inner) if inner else None
        _shaped(made.tensor_type, other, shape)
        return made
    of = proto_of(parse_type(inner))
    if of is None:
        return None
    field = made.sequence_type if name == "!onnx.seq" else made.optional_type
    field.elem_type.CopyFrom(of)
    return made


def _shaped(made, element: int, shape: Sequence[Dim] | None) -> None:
    """Fill in a tensor's type (``shape`` None: of unknown rank)."""
    made.elem_type = element
    if shape is not None:
        made.shape.SetInParent()
    for size in shape or ():
        dim = made.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size != ANY_SIZE:
            dim.dim_param = size
