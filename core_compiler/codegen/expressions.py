"""Scalar ops and conversions as Python expressions of generated source."""

from __future__ import annotations

import ast
import re

from core_compiler.ir import VectorType, dtype
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.ops import OPERANDS, definition, element, like

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def number_text(name: str, operands: list[str], lane, code: str, suffix: str) -> str:
    joined = ", ".join(operands)
    if name == "ne":
        return f"not_bool{suffix}(eq_{code}{suffix}({joined}))"
    if name == "is_nan":
        return f"not_bool{suffix}(eq_{code}{suffix}({joined}, {joined}))"
    if name in ("is_inf", "is_finite"):
        test = {"is_inf": "eq", "is_finite": "lt"}[name]
        top = spread(f"{code}({float_text(float('inf'))})", code, suffix)
        return f"{test}_{code}{suffix}(abs_{code}{suffix}({joined}), {top})"
    if lane.is_integer and name == "abs":
        if lane.kind == "uint":
            return joined
        return f"maximum_{code}{suffix}({joined}, neg_{code}{suffix}({joined}))"
    if lane.is_integer and name == "sign":
        low, zero, one = (spread(f"{code}({n})", code, suffix) for n in (-1, 0, 1))
        if lane.kind == "uint":
            return f"minimum_{code}{suffix}({joined}, {one})"
        del zero
        return f"maximum_{code}{suffix}({low}, minimum_{code}{suffix}({joined}, {one}))"
    if name == "ipow":
        return f"power_{code}{suffix}({joined})"
    return f"{scalars.symbol(name, lane)}{suffix}({joined})"


def spread(text: str, code: str, suffix: str) -> str:
    return f"splat_{code}{suffix}({text})" if suffix else text


def index_text(name: str, operands: list[str]) -> str:
    folded = _folded(name, *operands) if name in ("add", "sub", "mul") else None
    if folded is not None:  # of an unrolled loop's index
        return folded
    text = definition(f"kernel.{name}").index

    def operand(found: re.Match) -> str:
        given = operands[OPERANDS.index(found[0])]
        return given if found["bare"] else wrap(given)

    made = _OPERAND.sub(operand, text)
    return f"({made})" if name == "select" else made


#: An operand in a declared expression; ``bare``: an argument, or the first of a sum.
_OPERAND = re.compile(r"(?P<bare>(?:^|(?<=\()|(?<=, ))[abc](?=[,)]| [+-] ))|\b[abc]\b")


def _folded(name: str, a: str, b: str) -> str | None:
    """Return the simplified index arithmetic with constants, or None if it does not simplify."""
    if a.isdigit() and b.isdigit():
        known = {"add": int(a) + int(b), "sub": int(a) - int(b), "mul": int(a) * int(b)}[name]
        return str(known) if known >= 0 else None
    if name == "mul":
        if "0" in (a, b):
            return "0"
        return b if a == "1" else a if b == "1" else None
    if b == "0":
        return a
    return b if name == "add" and a == "0" else None


def bool_text(name: str, operands: list[str], suffix: str) -> str:
    if name == "select":
        return f"select_bool{suffix}({', '.join(operands)})"

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return operands[OPERANDS.index(node.id)]
        if isinstance(node, ast.UnaryOp):
            return f"not_bool{suffix}({text(node.operand)})"
        assert isinstance(node, ast.BinOp)
        return f"{_LOGIC[type(node.op)]}_bool{suffix}({text(node.left)}, {text(node.right)})"

    return text(ast.parse(definition(f"kernel.{name}").logic, mode="eval").body)


_LOGIC = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_F32, _F64, _I32, _I64 = (dtype(n) for n in ("f32", "f64", "i32", "i64"))


def cast(text: str, source, target, width: int | None, saturate: bool) -> str:
    """Return a numeric conversion as an expression."""
    suffix = f"x{width}" if width else ""
    if source is target:
        return text
    if source is INDEX:
        return cast(text, _I64, target, width, saturate)
    if target is INDEX:
        return cast(text, source, _I64, width, saturate)
    if scalars.is_narrow_integer(source):
        return cast(_decoded(text, source, suffix), _I32, target, width, saturate)
    if scalars.is_narrow_integer(target):
        return _encoded(cast(text, source, _I32, width, saturate), source, target, suffix)
    a, b = scalars.code_name(source), scalars.code_name(target)
    if source.kind == "bool":
        if scalars.is_narrow(target):
            return cast(cast(text, source, _F32, width, saturate), _F32, target, width, saturate)
        one, zero = (spread(f"{b}({n})", b, suffix) for n in (1, 0))
        return f"select_{b}{suffix}({text}, {one}, {zero})"
    if target.kind == "bool":
        if scalars.is_narrow(source):
            text, a = cast(text, source, _F32, width, saturate), "f32"
        return f"not_bool{suffix}(eq_{a}{suffix}({text}, {spread(f'{a}(0)', a, suffix)}))"
    if scalars.is_narrow(source):
        wide = f"convert_{a}_f32{suffix}({text})"
        return wide if target.name == "f32" else cast(wide, _F32, target, width, saturate)
    if scalars.is_narrow(target):
        if source.name == "f64":
            text = f"convert_f64_f32_odd{suffix}({text})"
        elif source.name != "f32":
            return cast(cast(text, source, _F64, width, saturate), _F64, target, width, saturate)
        return f"convert_f32_{b}{suffix}({text}, boolean({bool(saturate and target.bits <= 8)}))"
    return f"convert_{a}_{b}{suffix}({text})"


def _decoded(text: str, source, suffix: str) -> str:
    """Return the i32 value of a narrow integer's code, by sign extension."""
    if source.kind == "uint":
        return text
    above = spread(f"i32({32 - source.bits})", "i32", suffix)
    return f"shr_i32{suffix}(shl_i32{suffix}({text}, {above}), {above})"


def _encoded(text: str, source, target, suffix: str) -> str:
    """Return the code of an i32 as a narrow integer: a former float saturates, an integer wraps."""
    low, high = scalars.integer_range(target)
    if source.is_float:
        for name, bound in (("maximum", low), ("minimum", high)):
            text = f"{name}_i32{suffix}({text}, {spread(f'i32({bound})', 'i32', suffix)})"
    mask = spread(f"i32({(1 << target.bits) - 1})", "i32", suffix)
    return f"and_i32{suffix}({text}, {mask})"


def bitcast(text: str, source, target) -> str:
    if isinstance(source, VectorType) and not isinstance(target, VectorType):
        return f"word_{scalars.code_name(source.dtype)}x{source.width}({text})"
    suffix = f"x{source.width}" if isinstance(source, VectorType) else ""
    a, b = element(source), element(target)
    if a is b or (scalars.is_code(a) and scalars.is_code(b)):
        return text
    if scalars.is_narrow(a):
        return f"convert_i32_{scalars.code_name(b)}{suffix}({text})"
    if scalars.is_narrow(b):
        code = scalars.code_name(a)
        unsigned = (
            f"convert_{code}_{code.replace('i', 'u')}{suffix}({text})" if code[0] == "i" else text
        )
        return f"convert_{code.replace('i', 'u')}_i32{suffix}({unsigned})"
    if a.is_float:
        signed, code = dtype(f"i{a.bits}"), scalars.code_name(a)
        text = f"bits_{code}{suffix}({text})"
        return text if b is signed else bitcast(text, like(source, signed), target)
    if b.is_float:
        signed = dtype(f"i{b.bits}")
        if a is not signed:
            text = f"convert_{scalars.code_name(a)}_{scalars.code_name(signed)}{suffix}({text})"
        return f"from_bits_{scalars.code_name(b)}{suffix}({text})"
    return f"convert_{scalars.code_name(a)}_{scalars.code_name(b)}{suffix}({text})"


def vector_code(kind: VectorType) -> str:
    code = "i32" if scalars.is_code(kind.dtype) else scalars.code_name(kind.dtype)
    return f"{code}x{kind.width}"


def float_text(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def dense(dims: list[str]) -> list[str]:
    strides, step = [], "1"
    for dim in reversed(dims):
        strides.append(step)
        if step.isdigit() and dim.isdigit():
            step = str(int(step) * int(dim))
        else:
            step = dim if step == "1" else f"{wrap(dim)} * {wrap(step)}"
    return strides[::-1]


def wrap(text: str) -> str:
    """Return ``text`` in parentheses unless it is a word, call or subscript."""
    if re.fullmatch(r"[\w.]+", text) or re.fullmatch(r"\w+[\(\[][^()\[\]]*[\)\]]", text):
        return text
    return text if text.startswith("(") and _closes_last(text) else f"({text})"


def _closes_last(text: str) -> bool:
    depth = 0
    for place, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def total(a: str, b: str) -> str:
    return b if a == "0" else a if b == "0" else f"{a} + {b}"
