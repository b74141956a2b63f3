"""Encoding of IR as columns: attributes as JSON, lists of ids as compressed integers.

Decoders check sizes before they allocate and raise ValueError on data that no encoder wrote.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from core_compiler.ir.attributes import Attribute, Dense, Resource
from core_compiler.ir.diff import longest_increasing
from core_compiler.ir.parser import parse_type
from core_compiler.ir.types import TensorType, Type

#: Blocks with more ids than this are rejected.
MAX_IDS = 1 << 23
#: Lists with fewer ids than this are not compressed.
FEW = 64

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


# -- attributes ----------------------------------------------------------------------------------


def attributes_json(attributes: Mapping[str, Attribute]) -> str:
    """Return e.g. ``{"axis":1,"value":{"dense":"tensor<2xf32>","hex":"..."}}``."""
    try:
        return _FINITE.encode(dict(attributes))
    except ValueError:  # infinity or NaN, which JSON lacks
        return _encode({name: _plain(value) for name, value in attributes.items()})


def read_attributes(text: str) -> dict[str, Attribute]:
    return {name: _attribute(value) for name, value in json.loads(text).items()}


def _plain(value: Attribute) -> Any:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if isfinite(value) else {"float": np.float64(value).tobytes().hex()}
    return _named(value)


def _named(value: Any) -> dict[str, str]:
    """Return a value without a JSON form as an object whose keys name its kind."""
    if isinstance(value, Dense):
        return {"dense": str(value.type), "hex": value.data.hex()}
    if isinstance(value, Resource):
        return {"resource": value.digest, "type": str(value.type)}
    return {"type": str(value)}


_FINITE = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_named)


def _attribute(value: Any) -> Attribute:
    if isinstance(value, list):
        return tuple([_attribute(item) for item in value])
    if not isinstance(value, dict):
        if value is None:
            raise ValueError("null is not an attribute")
        return value
    match sorted(value):
        case ["float"]:
            return float(np.frombuffer(bytes.fromhex(value["float"]), np.float64)[0])
        case ["dense", "hex"]:
            return Dense(_tensor_type(value["dense"]), bytes.fromhex(value["hex"]))
        case ["resource", "type"]:
            return Resource(_tensor_type(value["type"]), str(value["resource"]))
        case ["type"]:
            return parse_type(value["type"])
    raise ValueError(f"unknown attribute {sorted(value)}")


def _tensor_type(text: str) -> TensorType:
    type_: Type = parse_type(text)
    if not isinstance(type_, TensorType):
        raise ValueError(f"{text} is not a tensor type")
    return type_


# -- ids -----------------------------------------------------------------------------------------


def ids_json(ids: Sequence[int]) -> str:
    return str(list(ids))


def read_ids(text: str) -> list[int]:
    ids = json.loads(text)
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise ValueError("not a list of ids")
    return ids


def read_json_rows(texts: Sequence[str]) -> list[list]:
    """Parse many JSON lists at once, which is much faster than one by one."""
    lists = json.loads(f"[{','.join(texts)}]")
    if len(lists) != len(texts) or not all(type(row) is list for row in lists):
        raise ValueError("not lists")
    return lists


def pack(numbers: Sequence[int]) -> str | bytes:
    """Encode integers: a few as JSON, more as compressed differences (int64, little-endian).

    The differences are those of neighbours.
    """
    if len(numbers) < FEW:
        return ids_json(numbers)
    return zlib.compress(np.diff(np.array(numbers, "<i8"), prepend=0).astype("<i8").tobytes(), 3)


def unpack(data: str | bytes, count: int) -> list[int]:
    """Return the ``count`` integers of :func:`pack`."""
    if not 0 <= count <= MAX_IDS:
        raise ValueError(f"{count} ids in one block")
    if isinstance(data, str):
        numbers = read_ids(data)
        if len(numbers) != count:
            raise ValueError(f"expected {count} ids, got {len(numbers)}")
        return numbers
    return np.cumsum(np.frombuffer(inflate(data, 8 * count), "<i8")).tolist()


def inflate(data: bytes, size: int) -> bytes:
    """Decompress bytes, which must be exactly ``size``; never produces more."""
    stream = zlib.decompressobj()
    content = stream.decompress(data, size) if size else b""
    if len(content) != size or (size and stream.decompress(stream.unconsumed_tail, 1)):
        raise ValueError("compressed data of the wrong size")
    return content


def edits(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """Return the edit script from ``old`` to ``new``.

    It has runs of ``keep from, keep count, insert count, ids...``.
    """
    index_of = dict(zip(old, range(len(old)), strict=True))
    old_indices = np.array([index_of.get(number, -1) for number in new], np.int64)
    at = np.flatnonzero(old_indices >= 0)
    unmoved = longest_increasing(old_indices[at].tolist())
    if len(unmoved) < len(at):
        at = at[unmoved]
    if not len(at):
        return [0, 0, len(new), *new]
    # Runs of kept numbers that are contiguous on both sides.
    breaks = 1 + np.flatnonzero((np.diff(at) != 1) | (np.diff(old_indices[at]) != 1))
    firsts = at[np.concatenate(([0], breaks))].tolist()
    lengths = np.diff(np.concatenate(([0], breaks, [len(at)]))).tolist()
    script: list[int] = [0, 0, firsts[0], *new[: firsts[0]]] if firsts[0] else []
    for first, length, end in zip(firsts, lengths, [*firsts[1:], len(new)], strict=True):
        inserted = new[first + length : end]
        script += [int(old_indices[first]), length, len(inserted), *inserted]
    return script


def apply_edits(old: Sequence[int], script: Sequence[int], length: int) -> list[int]:
    """Return ``new`` of :func:`edits`, which has ``length`` ids."""
    if not 0 <= length <= MAX_IDS:
        raise ValueError(f"{length} ids in one block")
    new: list[int] = []
    at = 0
    while at < len(script):
        start, kept, inserted = script[at : at + 3]
        at += 3 + inserted
        if min(start, kept, inserted) < 0 or start + kept > len(old) or at > len(script):
            raise ValueError("edits that do not fit their block")
        new += old[start : start + kept]
        new += script[at - inserted : at]
        if len(new) > length:
            raise ValueError("edits longer than their block")
    if len(new) != length:
        raise ValueError("edits shorter than their block")
    return new
