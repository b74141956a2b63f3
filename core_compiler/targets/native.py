"""The implementation half shared by targets that run a whole model."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.passes.base import Pass
from core_compiler.passes.bufferize import Bufferize
from core_compiler.passes.chain_kernels import ChainKernels
from core_compiler.passes.choose_layouts import ChooseLayouts
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.find_lifetimes import FindLifetimes
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_operands import FuseOperands
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.passes.generate_code import GenerateCode
from core_compiler.passes.inline_broadcasts import InlineBroadcasts
from core_compiler.passes.join_taps import JoinTaps
from core_compiler.passes.lay_out_weights import LayOutWeights
from core_compiler.passes.lower_composites import LowerComposites
from core_compiler.passes.lower_control_flow import LowerControlFlow
from core_compiler.passes.outline_kernels import OutlineKernels
from core_compiler.passes.pack_weights import PackWeights
from core_compiler.passes.pad_images import PadImages
from core_compiler.passes.plan_memory import PlanMemory
from core_compiler.passes.recompute_in_readers import RecomputeInReaders
from core_compiler.passes.schedule_kernels import ScheduleKernels
from core_compiler.passes.separate_zero_points import SeparateZeroPoints
from core_compiler.passes.share_repeated_operands import ShareRepeatedOperands
from core_compiler.passes.simplify_shapes import SimplifyShapes
from core_compiler.passes.split_arg_reductions import SplitArgReductions
from core_compiler.passes.split_reductions import SplitReductions
from core_compiler.passes.split_strided_convolutions import SplitStridedConvolutions


def implementation(in_vectors: bool = False, products: Sequence[Pass] = ()) -> Sequence[Pass]:
    """Return the passes from the end of the meaning half to a program of launches.

    ``in_vectors``: a thread computes neighbouring elements in a vector.  ``products``: further
    passes that rewrite products for the target.
    """
    return (
        LowerControlFlow(),
        LowerComposites(),
        ShareRepeatedOperands(),
        SplitStridedConvolutions(),
        SeparateZeroPoints(),
        *products,
        *((SplitArgReductions(), SplitReductions(), JoinTaps()) if in_vectors else ()),
        SimplifyShapes(),
        FoldConstants(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
        PackWeights(),
        LayOutWeights(),
        ChooseLayouts(),
        *((PadImages(),) if in_vectors else ()),
        InlineBroadcasts(),
        FuseElementwise(),
        FuseEpilogues(),
        FuseOperands(),
        FuseReductions(),
        RecomputeInReaders(),
        OutlineKernels(),
        Bufferize(),
        ScheduleKernels(),
        *((ChainKernels(),) if in_vectors else ()),
        FindLifetimes(),
        PlanMemory(),
        GenerateCode(),
    )
