"""Ops of ONNX that are one core op each: the names, for reading and for writing models.

Only what both directions share: a frontend also reads other forms of these ops, and a writer says
which forms of a core op they are equal to.
"""

from __future__ import annotations

#: On every element of one operand.
UNARY = {
    "Abs": "abs", "Neg": "neg", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Sin": "sin",
    "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
    "Erf": "erf", "Sigmoid": "sigmoid", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sign": "sign", "Not": "not", "IsNaN": "is_nan", "BitwiseNot": "bitnot", "Relu": "relu",
    "Softsign": "softsign", "Softplus": "softplus", "Mish": "mish", "HardSwish": "hard_swish",
}  # fmt: skip
#: On every element of two operands.
BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
}
#: On every element of any number of operands, two at a time.
MANY = {"Max": "max", "Min": "min", "Sum": "add"}
#: On every element, with attributes: (ONNX's name, the core op's, ONNX's default) of each.
ACTIVATIONS: dict[str, tuple[str, tuple[tuple[str, str, float | str], ...]]] = {
    "Celu": ("celu", (("alpha", "alpha", 1.0),)),
    "Elu": ("elu", (("alpha", "alpha", 1.0),)),
    "Gelu": ("gelu", (("approximate", "approximate", "none"),)),
    "HardSigmoid": ("hard_sigmoid", (("alpha", "alpha", 0.2), ("beta", "beta", 0.5))),
    "LeakyRelu": ("leaky_relu", (("alpha", "slope", 0.01),)),
}
