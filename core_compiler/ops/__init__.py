"""The ops of the tensor level: one declaration per op, one file per family.

Importing this package completes ``REGISTRY``. ``Builder`` creates ops, ``infer`` returns their
result types, ``evaluate`` runs their references, and ``cost`` counts flops and bytes.
"""

# isort: off
from core_compiler.ops.base import (
    REGISTRY,
    Attr,
    Cost,
    OpDef,
    TypeRuleError,
    agrees,
    declare,
    definition,
    infer,
    infer_op,
)
from core_compiler.ops.costs import cost
from core_compiler.ops.evaluation import evaluate, evaluate_block
from core_compiler.ops.builder import Builder, broadcast_shape, decomposed

# The families. Each import declares its ops, in the order of the documentation.
from core_compiler.ops import elementwise  # noqa: F401
from core_compiler.ops import shape  # noqa: F401
from core_compiler.ops import indexing  # noqa: F401
from core_compiler.ops import reduction  # noqa: F401
from core_compiler.ops import contraction  # noqa: F401
from core_compiler.ops import linear_algebra  # noqa: F401
from core_compiler.ops import convolution  # noqa: F401
from core_compiler.ops import window  # noqa: F401
from core_compiler.ops import sorting  # noqa: F401
from core_compiler.ops import random  # noqa: F401
from core_compiler.ops import collective  # noqa: F401
from core_compiler.ops import control  # noqa: F401
from core_compiler.ops import activation  # noqa: F401
from core_compiler.ops import normalization  # noqa: F401
from core_compiler.ops import attention  # noqa: F401
from core_compiler.ops import loss  # noqa: F401
from core_compiler.ops import quantised  # noqa: F401
from core_compiler.ops import integer_functions  # noqa: F401
# isort: on

__all__ = [
    "REGISTRY",
    "Attr",
    "Builder",
    "Cost",
    "OpDef",
    "TypeRuleError",
    "agrees",
    "broadcast_shape",
    "cost",
    "declare",
    "decomposed",
    "definition",
    "evaluate",
    "evaluate_block",
    "infer",
    "infer_op",
]
