"""Literals of the text form, printed and parsed: strings, value names, floats, dense constants.

Everything here is exact: parsing a printed literal restores the same bits and characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NoReturn

import numpy as np

from core_compiler.ir.attributes import Dense
from core_compiler.ir.types import TensorType

#: Constants with more elements than this are printed as bytes.
_LISTED_ELEMENTS = 16

_PLAIN_NAME = re.compile(r"[A-Za-z_.\-][A-Za-z0-9_.\-]*\Z").match
_STRING_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))", re.S)
_NAME_ESCAPES = re.compile(r"(?:\$x[0-9A-F]{2})+")
_REPEAT = re.compile(r"\$\d+\Z")

# -- strings and names ---------------------------------------------------------------------------


def unquoted(token: str) -> str:
    """Return the text of an MLIR string literal (``types.quoted`` prints them)."""
    body = token[1:-1]
    if "\\" not in body:
        return body
    raw = body.encode("utf-8", "surrogatepass").decode("latin-1")

    def plain(match: re.Match) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}.get(match[2], match[2])

    return _STRING_ESCAPE.sub(plain, raw).encode("latin-1").decode("utf-8", "surrogatepass")


@lru_cache(maxsize=65536)
def value_name(name: str) -> str:
    """Return ``%name`` in MLIR's characters: others, and a leading digit, become ``$xHH``."""
    if _PLAIN_NAME(name):
        return f"%{name}"
    out = ["%"]
    for index, c in enumerate(name):
        if _PLAIN_NAME(c) or (index and c.isascii() and c.isdigit()):
            out.append(c)
        else:
            out.extend(f"$x{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
    return "".join(out)


@lru_cache(maxsize=65536)
def read_value_name(token: str) -> str | None:
    """Return the name of ``%name$2`` (a repeat) or ``%a$x2Fb`` (an escape); None for a number."""
    name = _REPEAT.sub("", token[1:].partition("#")[0])
    if name.isdigit():
        return None

    def plain(match: re.Match) -> str:
        return bytes.fromhex(match[0].replace("$x", "")).decode("utf-8", "surrogatepass")

    return _NAME_ESCAPES.sub(plain, name) if "$" in name else name


# -- numbers -------------------------------------------------------------------------------------


def float_text(value: float) -> str:
    """Print a float64 that MLIR parses exactly: the shortest decimal with a point, or its bits."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"0x{np.float64(value).view(np.uint64):016X}"
    text = repr(value)
    if "." in text:
        return text
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if exponent else f"{mantissa}.0"


def dense_text(constant: Dense) -> str:
    """Print ``dense<...> : type`` exactly: a splat, a short list, or the bytes."""
    body = _dense_body(constant)
    return f"dense<{body}> : {constant.type}"


def _dense_body(constant: Dense) -> str:
    size = constant.type.dtype.bytes
    data = constant.data
    elements = len(data) // size
    if not elements:
        return ""
    if data == data[:size] * elements:
        return _elements(constant.array().reshape(-1)[:1])[0]
    if elements > _LISTED_ELEMENTS and constant.type.dtype.kind != "bool":
        return f'"0x{data.hex().upper()}"'
    return _nested(constant.type.shape, iter(_elements(constant.array().reshape(-1))))


def _nested(shape, items) -> str:
    if not shape:
        return next(items)
    return f"[{', '.join(_nested(shape[1:], items) for _ in range(shape[0]))}]"


def _elements(array: np.ndarray) -> list[str]:
    """Print each element of a flat array exactly."""
    if array.dtype == np.bool_:
        return ["true" if x else "false" for x in array]
    if array.dtype.kind in "iu" or array.dtype.name in ("int2", "int4", "uint2", "uint4"):
        return [str(int(x)) for x in array]
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    wide = array.astype(np.float64)
    out = []
    for x, w, b in zip(array, wide, bits, strict=True):
        if not np.isfinite(w):
            out.append(f"0x{int(b):0{2 * array.dtype.itemsize}X}")
            continue
        short = float_text(float(str(x))) if array.dtype == np.float32 else float_text(float(w))
        # MLIR parses through float64, so the short form must survive two roundings.
        out.append(short if np.float64(short).astype(array.dtype) == x else float_text(float(w)))
    return out


def dense_bytes(items: list[str], type_: TensorType) -> bytes:
    """Return the bytes of a dense body of tokens: nothing, a splat, nested lists, or hex."""
    home = type_.dtype.numpy
    count = type_.elements
    if len(items) == 1 and items[0][:1] == '"':
        data = bytes.fromhex(items[0][1:-1].removeprefix("0x"))
        if type_.dtype.bits == 1:
            raise ValueError("i1 constants are lists of true and false")
        if len(data) != count * home.itemsize:
            raise ValueError(f"{len(data)} bytes for {count} elements of {type_.dtype}")
        return data
    flat = [t for t in items if t not in "[],"]
    if len(flat) != count and not (len(flat) == 1 and items[0] != "["):
        raise ValueError(f"{len(flat)} elements, but {type_} has {count}")
    if count and len(flat) == 1 and items[0] != "[":
        return _scalar_bytes(flat[0], type_) * count
    return b"".join([_scalar_bytes(t, type_) for t in flat])


def _scalar_bytes(token: str, type_: TensorType) -> bytes:
    kind, home = type_.dtype.kind, type_.dtype.numpy
    if kind == "bool":
        return {"true": b"\1", "false": b"\0", "1": b"\1", "-1": b"\1", "0": b"\0"}.get(
            token
        ) or _bad(token)
    if "0x" in token and kind == "float":
        return int(token, 16).to_bytes(home.itemsize, "little")
    if kind == "float":
        return np.float64(token).astype(home).tobytes()
    value = int(token, 0)
    bits = type_.dtype.bits
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if kind == "int" else (0, 2**bits)
    if not low <= value < high:
        raise ValueError(f"{value} does not fit {type_.dtype}")
    return np.array(value, np.int64 if value < 2**63 else np.uint64).astype(home).tobytes()


def _bad(token: str) -> NoReturn:
    raise ValueError(f"{token!r} is not true or false")


# -- resources -------------------------------------------------------------------------------------

#: Number of bytes of a resource that are written at once.
_CHUNK = 1 << 20


def resource_section(arrays: Mapping[str, np.ndarray], alignment: int) -> Iterator[str]:
    """Yield MLIR's section with the bytes of named arrays, in pieces.

    Each array has its required alignment (bytes, as u32), then the data.
    """
    if not arrays:
        return
    yield "\n{-#\n  dialect_resources: {\n    builtin: {\n"
    head = "0x" + alignment.to_bytes(4, "little").hex()
    between = ""
    for name, array in arrays.items():
        yield f'{between}      {name}: "{head}'
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for start in range(0, len(raw), _CHUNK):
            yield raw[start : start + _CHUNK].hex()
        yield '"'
        between = ",\n"
    yield "\n    }\n  }\n#-}\n"
