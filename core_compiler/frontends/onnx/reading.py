"""Reading of untrusted ``.onnx`` files.

External data must be in the model's folder; every size is checked against the file before memory is
allocated; a truncated or foreign file is reported as an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.ir import DType, Value, WeightStore, dtype
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.support.regular_files import inside, need_regular, read_regular

#: ``TensorProto`` data type -> dtype name.
DTYPES = {
    1: "f32", 2: "ui8", 3: "i8", 4: "ui16", 5: "i16", 6: "i32", 7: "i64", 9: "i1", 10: "f16",
    11: "f64", 12: "ui32", 13: "ui64", 16: "bf16", 17: "f8E4M3FN", 18: "f8E4M3FNUZ",
    19: "f8E5M2", 20: "f8E5M2FNUZ", 21: "ui4", 22: "i4", 23: "f4E2M1FN", 24: "f8E8M0FNU",
    25: "ui2", 26: "i2",
}  # fmt: skip

#: The prefix of the external location of a tensor that was omitted from a ``ModelProto``: the rest
#: is its digest in a weight store.
STORED = "weights:"
#: The names of the default domain.
DOMAINS = ("", "ai.onnx")
#: The largest file that protobuf reads.
LARGEST = (1 << 31) - 1
#: The maximum number of axes of a NumPy array.
MAX_AXES = 64
#: The maximum length of the name of a node or tensor (characters), which functions and unrolled
#: loops repeat.
MAX_NAME_LENGTH = 4096


def read_model(path: Path):
    """Return the ``ModelProto`` of a file without its external data; raise UserError if invalid."""
    import onnx
    from google.protobuf.message import DecodeError

    where = str(path)
    try:
        size = need_regular(path).st_size
        if size > LARGEST:
            raise UserError(
                f"the file has {size} bytes, protobuf reads at most 2 GiB",
                where,
                "export the weights as external data",
            )
        if size > _free_memory() // 2:
            raise UserError(
                f"reading needs {2 * size >> 20} MiB, only {_free_memory() >> 20} MiB are free",
                where,
                "export the weights as external data",
                CANNOT_HERE,
            )
        model = onnx.ModelProto.FromString(read_regular(path))
    except (DecodeError, ValueError, OSError, RecursionError) as error:
        raise UserError(
            f"not a readable ONNX model ({_first_line(error)})",
            where,
            "the file is truncated or in another format; export it again",
        ) from None
    if not model.ir_version or not model.graph.output:
        raise UserError(
            "not an ONNX model: it has no graph with outputs", where, "pass a .onnx file"
        )
    return model


def need_sound(model, where: str) -> None:
    """Raise UserError if a model has invalid text, a name that is too long, or an invalid version.

    Protobuf returns bytes for text that is not UTF-8.
    """
    from google.protobuf.message import Message
    from onnx import OperatorSetIdProto, TensorProto

    stack: list[Any] = [model]
    while stack:
        part = stack.pop()
        if isinstance(part, TensorProto):  # without its data: reading a field copies it
            stack += part.external_data
            _need_text("name", (part.name,), where)
            continue
        if isinstance(part, OperatorSetIdProto) and not 0 < part.version < 1 << 31:
            raise UserError(
                f"invalid version {part.version} of domain {part.domain!r}",
                where,
                "the file is damaged; export it again",
            )
        for field, held in part.ListFields():
            if field.type == field.TYPE_STRING:
                _need_text(field.name, (held,) if isinstance(held, str | bytes) else held, where)
            elif field.type == field.TYPE_MESSAGE:
                stack += (held,) if isinstance(held, Message) else held


#: Fields that hold text of any length.
_UNLIMITED_FIELDS = frozenset({"doc_string", "value"})


def _need_text(field: str, held: Iterable[str | bytes], where: str) -> None:
    for text in held:
        if isinstance(text, bytes):
            raise UserError(
                "a name in the model is not valid UTF-8",
                where,
                "the file is damaged; export it again",
            )
        if len(text) > MAX_NAME_LENGTH and field not in _UNLIMITED_FIELDS:
            raise UserError(
                f"a name has {len(text)} characters, expected at most {MAX_NAME_LENGTH}",
                where,
                "shorten it",
            )


def _free_memory() -> int:
    import psutil

    return psutil.virtual_memory().available


def dtype_of(number: int, where: str = "") -> DType:
    """Return the dtype of a ``TensorProto`` data type.

    Raise UserError for unsupported ones, such as strings and complex numbers.
    """
    if number not in DTYPES:
        import onnx

        known = number in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(number) if known else number
        raise UserError(
            f"tensors of type {name} are not supported", where, "convert them in the model"
        )
    return dtype(DTYPES[number])


def type_of(value: Value | Sequence[Value] | None):
    """Return the ``TypeProto`` of a tensor, or of a sequence of them; an empty one for None."""
    import onnx

    if value is None:
        return onnx.TypeProto()
    if not isinstance(value, Value):
        return onnx.helper.make_sequence_type_proto(type_of(value[0] if value else None))
    number = next(n for n, name in DTYPES.items() if name == value.type.dtype.name)
    return onnx.helper.make_tensor_type_proto(number, value.type.shape)


def to_array(tensor, folder: Path | WeightStore | None) -> np.ndarray:
    """Return the array of a ``TensorProto``.

    External data is memory-mapped from ``folder``, or taken from a weight store, in which it is
    called ``weights:DIGEST``.  Raise UserError if the length of the data does not match the dtype
    and shape.
    """
    where = f"tensor {tensor.name!r}"
    kind = dtype_of(tensor.data_type, where)
    shape = tuple(tensor.dims)
    need_rank(len(shape), where)
    if any(d < 0 for d in shape):
        raise UserError(
            f"negative dimension in {shape}", where, "the file is damaged; export it again"
        )
    if tensor.HasField("segment"):
        raise UserError("tensors in segments are not supported", where, "export the model again")
    if tensor.data_location == 1:
        return _external(tensor, kind, shape, folder)
    if tensor.HasField("raw_data"):
        expected = _stored_bytes(kind, shape)
        if len(tensor.raw_data) != expected:
            raise UserError(
                f"expected {expected} bytes of data, got {len(tensor.raw_data)}",
                where,
                "the file is damaged; export it again",
            )
    from onnx import numpy_helper

    try:
        array = np.asarray(numpy_helper.to_array(tensor))
        return np.ascontiguousarray(array).astype(kind.numpy, copy=False).reshape(shape)
    except Exception as error:  # numpy_helper trusts the file and fails in many ways
        raise UserError(
            f"cannot be read ({_first_line(error)})", where, "the file is damaged; export it again"
        ) from None


def need_rank(rank: int, where: str) -> None:
    """Raise UserError if a tensor has more axes than an array can have."""
    if rank > MAX_AXES:
        raise UserError(
            f"rank {rank} is not supported, expected at most {MAX_AXES}",
            where,
            "reshape it to fewer axes",
        )


def external_files(model) -> list[str]:
    """Return the names of the data files that a ``ModelProto`` refers to, as written, sorted."""
    found: set[str] = set()

    def tensors(held) -> None:
        for tensor in held:
            if tensor.data_location == 1:
                found.update(e.value for e in tensor.external_data if e.key == "location")

    def nodes(held) -> None:
        for attribute in (a for node in held for a in node.attribute):
            tensors([attribute.t, *attribute.tensors])
            for graph in (attribute.g, *attribute.graphs):
                tensors(graph.initializer)
                nodes(graph.node)

    tensors(model.graph.initializer)
    nodes(model.graph.node)
    for function in model.functions:
        nodes(function.node)
    return sorted(name for name in found if not name.startswith(STORED))


def _stored_bytes(kind: DType, shape) -> int:
    elements = prod(shape)
    return (
        -(-elements * kind.bits // 8)
        if kind.bits < 8 and kind.kind != "bool"
        else elements * kind.bytes
    )


def _external(tensor, kind: DType, shape, folder: Path | WeightStore | None) -> np.ndarray:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    where = f"external data of tensor {tensor.name!r}"
    location = facts.get("location", "")
    if isinstance(folder, WeightStore):
        return folder[location.removeprefix(STORED)]
    if folder is None:
        raise UserError("the model was not read from a file", where, "import it from a file")
    path = inside(folder, location, where)
    try:
        offset, length = int(facts.get("offset", 0)), int(facts.get("length", 0))
    except ValueError:
        raise UserError(
            "offset or length is not a number", where, "export the model again"
        ) from None
    expected = _stored_bytes(kind, shape)
    length = length or expected
    size = path.stat().st_size
    if offset < 0 or length != expected or offset + expected > size:
        raise UserError(
            f"expected {expected} bytes, got {length} at offset {offset} in a file of {size}",
            where,
            "the data file is truncated or belongs to another model",
        )
    if kind.bits < 8 and kind.kind != "bool":
        raise UserError(
            f"data of type {kind} are not supported", where, "store them in the model file"
        )
    try:
        if expected == 0:
            return np.zeros(shape, kind.numpy)
        data = np.memmap(path, np.uint8, "r", offset, expected)
        return np.asarray(data).view(kind.numpy).reshape(shape)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot be read ({_first_line(error)})", where, "check the data file"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def need_unchanged(model, opset: int, oldest: int, name: str) -> None:
    """Raise UserError if the meaning of a node has changed since its version.

    This concerns versions before ``oldest``, the oldest supported one; it is also raised if ONNX
    does not define the op in both.
    """
    kinds = dict.fromkeys(node.op_type for node in model.graph.node if node.domain in DOMAINS)
    changed = [kind for kind in kinds if not _is_same_definition(kind, opset, oldest)]
    if changed:
        raise UserError(
            f"opset {opset} is too old: it defines {', '.join(changed[:5])} differently",
            name,
            f"convert it to opset {oldest} or newer",
        )


def _is_same_definition(op_type: str, opset: int, later: int) -> bool:
    """Return whether two versions define an op alike, except for a memory hint of the first."""
    import onnx

    try:
        old, new = (onnx.defs.get_schema(op_type, version) for version in (opset, later))
    except onnx.defs.SchemaError:
        return False
    return old.since_version == new.since_version or _definition_key(old) == _definition_key(new)


def _definition_key(schema) -> tuple:
    tensors = [(t.name, str(t.option)) for t in (*schema.inputs, *schema.outputs)]
    attributes = {
        name: (str(a.type), a.required, a.default_value.SerializeToString())
        for name, a in schema.attributes.items()
        if name != "consumed_inputs"
    }
    return tensors, attributes
