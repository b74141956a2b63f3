"""``<width x dtype>`` as a Numba value: LLVM vectors in registers, by intrinsics.

If accumulators must stay in registers (products), LLVM's loop vectoriser does not help: it reloads
them at each step, checks pointers for overlap and compiles for seconds. With vector values the
source determines the machine code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from core_compiler.numerics.primitives import FLOATS, NUMBERS

_ELEMENTS = {"f32": ir.FloatType(), "f64": ir.DoubleType()}


class VectorType(types.Type):
    """The Numba type of ``width`` lanes of ``dtype`` ("f32", "i32" ...)."""

    def __init__(self, dtype: str, width: int):
        self.dtype, self.width = dtype, width
        super().__init__(name=f"vector({dtype}x{width})")

    @property
    def ir_type(self) -> ir.VectorType:
        element = _ELEMENTS.get(self.dtype) or ir.IntType(int(self.dtype[1:]))
        return ir.VectorType(element, self.width)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector_type):
        super().__init__(manager, vector_type, vector_type.ir_type)


@functools.cache
def vector_operations(dtype: str, width: int) -> dict[str, Callable]:
    """Return intrinsics on vectors by name.

    ``load(array1d, i)``, ``store(array1d, i, v)``, ``splat(x)``, ``splat_at(array1d, i)``, ``fma(a,
    b, c)`` (multiply, add and wrap for integers), ``add(a, b)``. Loads and stores access ``width``
    consecutive elements from index i, unchecked, at the element's alignment.
    """
    vector, element = VectorType(dtype, width), NUMBERS[dtype]
    ir_type = vector.ir_type
    align = int(dtype[1:]) // 8

    def address(context, builder, array_type, array, index):
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [index]), ir_type.as_pointer())

    def broadcast(builder, scalar):
        undefined, i32 = ir.Constant(ir_type, ir.Undefined), ir.IntType(32)
        one = builder.insert_element(undefined, scalar, ir.Constant(i32, 0))
        zeros = ir.Constant(ir.VectorType(i32, width), [0] * width)
        return builder.shuffle_vector(one, undefined, zeros)

    @intrinsic
    def load(typing, array, index):
        def codegen(context, builder, signature, args):
            pointer = address(context, builder, signature.args[0], *args)
            return builder.load(pointer, align=align)

        return vector(array, types.intp), codegen

    @intrinsic
    def store(typing, array, index, value):
        def codegen(context, builder, signature, args):
            builder.store(args[2], address(context, builder, signature.args[0], *args[:2]), align)
            return context.get_dummy_value()

        return types.void(array, types.intp, vector), codegen

    @intrinsic
    def splat(typing, x):
        def codegen(context, builder, signature, args):
            return broadcast(builder, args[0])

        return vector(element), codegen

    @intrinsic
    def splat_at(typing, array, index):
        def codegen(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return broadcast(builder, builder.load(builder.gep(data, [args[1]]), align=align))

        return vector(array, types.intp), codegen

    @intrinsic
    def fma(typing, a, b, c):
        def codegen(context, builder, signature, args):
            if dtype not in FLOATS:
                return builder.add(builder.mul(args[0], args[1]), args[2])
            name = f"llvm.fma.v{width}{dtype}"
            function_type = ir.FunctionType(ir_type, [ir_type] * 3)
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            return builder.call(function, args)

        return vector(vector, vector, vector), codegen

    @intrinsic
    def add(typing, a, b):
        def codegen(context, builder, signature, args):
            return builder.fadd(*args) if dtype in FLOATS else builder.add(*args)

        return vector(vector, vector), codegen

    return {
        "load": load,
        "store": store,
        "splat": splat,
        "splat_at": splat_at,
        "fma": fma,
        "add": add,
    }
