"""Values, ops, blocks and modules; origins; the rewriter, the verifier, text and diffs.

The IR is immutable: a pass is a function from a module to a module, and a snapshot is a retained
reference. Operands point to values, but values do not point to ops, so replacing an op by one that
defines the same value rebuilds only that op.
"""

import core_compiler.ir.text  # noqa: F401  (enters how a module is shown in a notebook)
from core_compiler.ir.attributes import Dense, Resource, as_array, attributes_key, dense
from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.rewriter import Rewrite, Rewriter, Rounding
from core_compiler.ir.types import (
    BufferType,
    DType,
    IndexType,
    OpaqueType,
    TensorType,
    Type,
    VectorType,
    buffer,
    dtype,
    opaque,
    tensor,
    vector,
)
from core_compiler.ir.weights import WeightStore

__all__ = [
    "Block",
    "BufferType",
    "DType",
    "Dense",
    "FrontendNode",
    "Function",
    "IndexType",
    "Module",
    "Op",
    "OpaqueType",
    "Origin",
    "Resource",
    "Rewrite",
    "Rewriter",
    "Rounding",
    "TensorType",
    "Type",
    "Value",
    "VectorType",
    "WeightStore",
    "as_array",
    "attributes_key",
    "buffer",
    "dense",
    "dtype",
    "opaque",
    "tensor",
    "vector",
]
