"""The ONNX equivalents of dtypes, and the dtypes that each ONNX op accepts.

The accepted dtypes are read from the schemas of the installed onnx package, so an export for an
older opset widens dtypes that only newer ones accept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from core_compiler.ir import DType, dtype

#: dtype -> (``TensorProto.DataType``, its name in schemas, the opset that introduced it).
ONNX = {
    "f32": (1, "float", 1), "ui8": (2, "uint8", 1), "i8": (3, "int8", 1), "ui16": (4, "uint16", 1),
    "i16": (5, "int16", 1), "i32": (6, "int32", 1), "i64": (7, "int64", 1), "i1": (9, "bool", 1),
    "f16": (10, "float16", 1), "f64": (11, "double", 1), "ui32": (12, "uint32", 1),
    "ui64": (13, "uint64", 1), "bf16": (16, "bfloat16", 13), "f8E4M3FN": (17, "float8e4m3fn", 19),
    "f8E4M3FNUZ": (18, "float8e4m3fnuz", 19), "f8E5M2": (19, "float8e5m2", 19),
    "f8E5M2FNUZ": (20, "float8e5m2fnuz", 19), "ui4": (21, "uint4", 21), "i4": (22, "int4", 21),
    "f4E2M1FN": (23, "float4e2m1", 23), "f8E8M0FNU": (24, "float8e8m0", 24),
    "ui2": (25, "uint2", 25), "i2": (26, "int2", 25),
}  # fmt: skip
_BY_TEXT = {f"tensor({text})": dtype(name) for name, (_, text, _) in ONNX.items()}

#: Wider dtypes that represent every value, most likely first.  Results that wrap in the narrow
#: integer are the same after a cast back: adding, multiplying and shifting left only lose high
#: bits.
WIDER = {
    "bf16": ("f32",),
    "f16": ("f32",),
    "i1": ("ui8", "i32"),
    "i8": ("i32",),
    "ui8": ("i32",),
    "i16": ("i32",),
    "ui16": ("i32",),
    "ui32": ("i64",),
    "i4": ("i8", "i32"),
    "ui4": ("ui8", "i32"),
    "i2": ("i8", "i32"),
    "ui2": ("ui8", "i32"),
    **dict.fromkeys(("f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f4E2M1FN"), ("f32",)),
}

#: Integers that an ONNX op accepts but onnxruntime has no kernel for: a cast to a wider dtype keeps
#: the bits and lets the model run.
WITHOUT_KERNEL = {
    "BitShift": ("ui16",),
    "Clip": ("i16", "ui16"),
    "CumSum": ("ui32",),
    "Max": ("i16", "ui16"),
    "Min": ("i16", "ui16"),
    "Pad": ("i16", "ui16"),
    "TopK": ("ui16", "ui32"),
    "ArgMax": ("i16", "ui16", "ui32"),
    "ArgMin": ("i16", "ui16", "ui32"),
    "Where": ("i1", "i16", "ui16"),
}


def number(kind: DType) -> int:
    """Return the ``TensorProto.DataType`` of a dtype that ONNX has."""
    return ONNX[kind.name][0]


def missing(kind: DType, opset: int) -> str:
    """Return why ``opset`` does not support tensors of ``kind``, or "" if it does."""
    if kind.name not in ONNX:
        return f"{kind.name} is not an ONNX dtype"
    since = ONNX[kind.name][2]
    return f"{kind.name} requires opset {since} or newer" if opset < since else ""


@dataclass(frozen=True)
class Signature:
    """The types of an ONNX op's inputs and outputs at an opset.

    ``inputs`` and ``outputs`` name a type variable each (the last one repeats if ``variadic``);
    ``allowed`` maps a variable to its dtypes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    allowed: Mapping[str, frozenset[DType]]
    variadic: bool

    def variable(self, place: int) -> str:
        """Return the type variable of the input at ``place``."""
        return self.inputs[min(place, len(self.inputs) - 1)]


@cache
def signature(kind: str, opset: int) -> Signature | None:
    """Return the signature of ``kind``.

    None if the default domain does not have the op at ``opset``, or has deprecated it.
    """
    import onnx

    try:
        schema = onnx.defs.get_schema(kind, opset, "")
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    allowed = {
        c.type_param_str: frozenset(_BY_TEXT[t] for t in c.allowed_type_strs if t in _BY_TEXT)
        for c in schema.type_constraints
    }
    for held in (*schema.inputs, *schema.outputs):
        if held.type_str in _BY_TEXT:
            allowed[held.type_str] = frozenset({_BY_TEXT[held.type_str]})
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return Signature(
        tuple(i.type_str for i in schema.inputs),
        tuple(o.type_str for o in schema.outputs),
        allowed,
        bool(schema.inputs) and schema.inputs[-1].option == variadic,
    )


def carrier(kind: str, given: DType, allowed: frozenset[DType]) -> DType | None:
    """Return the dtype in which ``kind`` computes on ``given``: itself, a wider one, or None."""
    if given in allowed and given.name not in WITHOUT_KERNEL.get(kind, ()):
        return given
    wider = (dtype(name) for name in WIDER.get(given.name, ()))
    found = next(
        (w for w in wider if w in allowed and w.name not in WITHOUT_KERNEL.get(kind, ())), None
    )
    return found or (given if given in allowed else None)
