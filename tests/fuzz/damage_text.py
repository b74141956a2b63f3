"""Damage to MLIR text: its tokens, lines and nesting."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_OP = re.compile(r"\b(?:stablehlo|chlo|func|vhlo)\.\w+")
_TYPE = re.compile(r"tensor<[^<>]{0,99}(?:<[^<>]{0,99}>[^<>]{0,99})?>")
_ELEMENT = re.compile(r"(?<=[x<])[a-z]{1,4}\d{1,3}\w{0,8}(?=>)")
_NUMBER = re.compile(r"-?\b\d+\b")
_NAME = re.compile(r"%\w+(?:#\d+)?")
_SYMBOL = re.compile(r"@[\w.\"]+")
_ATTRIBUTE = re.compile(r"\b\w+ ?= ?[^,{}<>]+")
_TOKEN = re.compile(r"[%@#!]?[\w.$]+|\"[^\"\n]*\"|\S")

_NUMBERS = ("0", "-1", "1", "2", "7", "64", "1000000", "2147483647", "2147483648", "4294967296",
            "1000000000000", "9223372036854775807", "-9223372036854775808",
            "18446744073709551616", "99999999999999999999999999")  # fmt: skip
_ELEMENTS = ("f32", "f64", "f16", "bf16", "i1", "i4", "i8", "i32", "i64", "ui8", "ui64", "i3",
             "i128", "f8E4M3FN", "f4E2M1FN", "complex<f32>", "index", "!stablehlo.token",
             "!quant.uniform<i8:f32, 0.1>", "tuple<f32>")  # fmt: skip
_OPS = (
    *(f"stablehlo.{name}" for name in (
        "abs", "add", "batch_norm_inference", "bitcast_convert", "broadcast_in_dim", "case",
        "cholesky", "clamp", "compare", "complex", "composite", "concatenate", "constant",
        "convert", "convolution", "custom_call", "dot_general", "dynamic_broadcast_in_dim",
        "dynamic_iota", "dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice",
        "fft", "gather", "get_dimension_size", "get_tuple_element", "if", "infeed", "iota", "map",
        "optimization_barrier", "pad", "real", "reduce", "reduce_precision", "reduce_window",
        "reshape", "return", "reverse", "rng", "rng_bit_generator", "scatter", "select",
        "select_and_scatter", "set_dimension_size", "slice", "sort", "torch_index_select",
        "transpose", "triangular_solve", "tuple", "while",
    )),
    "chlo.erf_inv", "chlo.top_k", "chlo.lgamma", "chlo.ragged_dot", "func.call", "func.return",
    "no.such_op",
)  # fmt: skip
_TYPES = ("tensor<f32>", "tensor<?xf32>", "tensor<4x?xf32>", "tensor<*xf32>", "tensor<0x3xf32>",
          "tensor<1000000x1000000x1000000xf32>", "tensor<9223372036854775807xi8>",
          "tensor<4x6xcomplex<f32>>", "tensor<2x!quant.uniform<i8:f32, 0.1>>", "tuple<>",
          "!stablehlo.token", "f32", "index", "memref<4xf32>", "vector<4xf32>", "none",
          "tensor<4xf32, #stablehlo.bounds<?>>", "(f32) -> f32")  # fmt: skip


def damaged(text: str, other: str, random: Random) -> str:
    """``text`` with one to five of its parts changed; ``other`` is where foreign parts come
    from."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        text = random.choice(_KINDS)(text, other, random)
        if len(text) > 1 << 20:
            break
    return text


def _swapped(pattern: re.Pattern, new: Callable[[str, Random], str]) -> Callable:
    """One match of ``pattern`` replaced."""

    def edit(text: str, other: str, random: Random) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text
        match = random.choice(found)
        return text[: match.start()] + new(match[0], random) + text[match.end() :]

    return edit


def _another(pattern: re.Pattern) -> Callable:
    """One match of ``pattern`` replaced by another match, of this text or of the other."""

    def edit(text: str, other: str, random: Random) -> str:
        found = list(pattern.finditer(text))
        pool = [m[0] for m in (*found, *list(pattern.finditer(other))[:200])]
        if not found:
            return text
        match = random.choice(found)
        return text[: match.start()] + random.choice(pool) + text[match.end() :]

    return edit


def _a_number(old: str, random: Random) -> str:
    near = str(int(old) + random.choice((-1, 1, 2)))
    return near if random.random() < 0.4 else random.choice(_NUMBERS)


def _lines(edit: Callable[[list[str], list[str], Random], None]) -> Callable:
    def edited(text: str, other: str, random: Random) -> str:
        lines = text.split("\n")
        edit(lines, other.split("\n"), random)
        return "\n".join(lines)

    return edited


def _cut_line(lines: list[str], other: list[str], random: Random) -> None:
    del lines[random.randrange(len(lines))]


def _repeat_line(lines: list[str], other: list[str], random: Random) -> None:
    at = random.randrange(len(lines))
    lines[at:at] = [lines[at]] * random.choice((1, 2, 50))


def _swap_lines(lines: list[str], other: list[str], random: Random) -> None:
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]


def _foreign_line(lines: list[str], other: list[str], random: Random) -> None:
    lines.insert(random.randrange(len(lines) + 1), random.choice(other))


def _token(text: str, other: str, random: Random) -> str:
    """A token cut out, doubled, or put in from elsewhere."""
    found = list(_TOKEN.finditer(text))
    match, source = random.choice(found), random.choice(found)
    new = random.choice(("", f"{match[0]} {match[0]}", f"{match[0]} {source[0]}", source[0]))
    return text[: match.start()] + new + text[match.end() :]


def _nested(text: str, other: str, random: Random) -> str:
    """Something that may nest, nested deep, in the place of an attribute or at the end."""
    deep = random.choice((3, 10, 30, 100, 300, 300, 300, 30_000))
    opening, inside, closing = random.choice(
        (
            ("[", "1", "]"),
            ("{a = ", "1", "}"),
            ("tuple<", "f32", ">"),
            ("(", "", ")"),
            ("loc(fused[", "unknown", "])"),
            ("loc(callsite(unknown at ", "unknown", "))"),
            ("dense<[", "1", "]>"),
            ("() -> (", "f32", ")"),
            ("#stablehlo.bounds<", "4", ">"),
            ("complex<", "f32", ">"),
            ("{", "", "}"),
            ("affine_map<(d0) -> (", "d0", ")>"),
        )
    )
    held = opening * deep + inside + closing * random.choice((deep, deep, 0))
    found = list(_ATTRIBUTE.finditer(text)) + list(_TYPE.finditer(text))
    if not found or random.random() < 0.2:
        return text + held
    match = random.choice(found)
    name, sign, _ = match[0].partition("=")
    return text[: match.start()] + (f"{name}= " if sign else "") + held + text[match.end() :]


def _long(text: str, other: str, random: Random) -> str:
    """A name or a string made long."""
    found = list(re.finditer(r'"[^"\n]*"|%\w+|@\w+', text))
    if not found:
        return text
    match = random.choice(found)
    long = match[0][:-1] + random.choice(("x", "\\0A", "é", "\\")) * 100_000 + match[0][-1:]
    return text[: match.start()] + long + text[match.end() :]


_KINDS: tuple[Callable[[str, str, Random], str], ...] = (
    _swapped(_NUMBER, _a_number),
    _swapped(_NUMBER, _a_number),
    _swapped(_NUMBER, _a_number),
    _swapped(_ELEMENT, lambda _, random: random.choice(_ELEMENTS)),
    _swapped(_TYPE, lambda _, random: random.choice(_TYPES)),
    _another(_TYPE),
    _swapped(_OP, lambda _, random: random.choice(_OPS)),
    _another(_OP),
    _another(_NAME),
    _another(_NAME),
    _another(_SYMBOL),
    _another(_ATTRIBUTE),
    _lines(_cut_line),
    _lines(_repeat_line),
    _lines(_swap_lines),
    _lines(_foreign_line),
    _token,
    _token,
    _nested,
    _long,
)
