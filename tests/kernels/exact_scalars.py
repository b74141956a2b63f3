"""The contract's primitives in plain Python, exact: what a second target provides. Test helper."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np

from core_compiler.numerics import primitives
from tests.kernels import definitions


class Scalar:
    """Stand-ins for a target's primitives: NumPy scalars, fma by exact rationals."""

    @staticmethod
    def names() -> dict:
        made: dict = {
            "f32": np.float32,
            "f64": np.float64,
            "boolean": bool,
            **{n: getattr(np, str(t)) for n, t in primitives.INTEGERS.items()},
        }
        for name, (_, result, dtype, _) in primitives.LEAF_TABLE.items():
            made[name] = Scalar.leaf(name, str(result), dtype)
        return made | primitives.composed_primitives(lambda f: f, made)

    @staticmethod
    def leaf(name: str, result: str, dtype: str):
        op = name.rsplit("_", 1)[0]
        out = {"bool": bool}.get(result) or getattr(np, result)
        if name.startswith("convert"):
            target = name.rsplit("_", 1)[1]
            if dtype[0] == "f" and target[0] in "iu":
                info = np.iinfo(out)
                return lambda a: (
                    out(0)
                    if a != a
                    else out(min(max(int(min(max(a, -1e30), 1e30)), int(info.min)), int(info.max)))
                )
            if dtype[0] in "iu" and target[0] in "iu":
                wide = np.int64 if dtype[0] == "i" else np.uint64
                return lambda a: wide(a).astype(out)
            return lambda a: out(a)
        width = int(dtype[1:])
        signed = {"f32": ("<f", "<i"), "f64": ("<d", "<q")}.get(dtype)
        return {
            "fma": lambda a, b, c: Scalar.fma(out, a, b, c),
            "add": lambda a, b: out(a + b),
            "sub": lambda a, b: out(a - b),
            "mul": lambda a, b: out(a * b),
            "div": lambda a, b: out(a / b if dtype[0] == "f" else int(Fraction(int(a), int(b)))),
            "rem": lambda a, b: out(int(a) % int(b)),  # met with unsigned operands only
            "neg": lambda a: out(-a),
            "abs": lambda a: out(abs(a)),
            "sqrt": lambda a: out(np.sqrt(a)),
            "floor": np.floor,
            "ceil": np.ceil,
            "trunc": np.trunc,
            "round_even": np.rint,
            "copysign": lambda a, b: out(np.copysign(a, b)),
            "and": lambda a, b: out(a & b),
            "or": lambda a, b: out(a | b),
            "xor": lambda a, b: out(a ^ b),
            "not": lambda a: out(~a),
            "shl": lambda a, n: out(a << n) if 0 <= n < width else out(0),
            "shr": lambda a, n: out(a >> n) if 0 <= n < width else out(0),
            "mulhi": lambda a, b: out(int(a) * int(b) >> width),
            "dot4": Scalar.dot4,
            "eq": lambda a, b: bool(a == b),
            "lt": lambda a, b: bool(a < b),
            "le": lambda a, b: bool(a <= b),
            "select": lambda c, a, b: out(a if c else b),
            "bits": lambda a: out(struct.unpack(signed[1], struct.pack(signed[0], a))[0]),
            "from_bits": lambda a: np.frombuffer(
                np.int64(a).astype(f"i{width // 8}").tobytes(), out
            )[0],
        }[op]

    @staticmethod
    def dot4(a, b, c):
        """The sum of four products of bytes, from the definition: it wraps."""
        x = int(a).to_bytes(4, "little", signed=True)
        y = [v - 256 * (v > 127) for v in int(b).to_bytes(4, "little", signed=True)]
        total = int(c) + sum(i * j for i, j in zip(x, y, strict=True))
        return np.int32((total + (1 << 31)) % (1 << 32) - (1 << 31))

    @staticmethod
    def fma(out, a, b, c):
        if out is np.float32:
            return definitions.fma(a, b, c)
        if not all(map(math.isfinite, (a, b, c))):
            return out(a * b + c)
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        try:
            return out(float(exact)) if exact else out(a * b + c)
        except OverflowError:
            return out(-math.inf if exact < 0 else math.inf)
