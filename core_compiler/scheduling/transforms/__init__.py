"""Loop transformations on kernel IR: functions from a kernel to an equivalent one.

They are independent of the target. A target's schedule is a list of these steps with its
parameters: a CPU splits to registers and caches, a GPU binds the same outer loops to blocks and
threads and stages in shared memory, an accelerator stages in its scratchpad and outlines the part
for its matrix unit. A step that is illegal or would change a bit raises :class:`Refused` with the
reason.
"""

from core_compiler.scheduling.transforms.bytes import four_terms
from core_compiler.scheduling.transforms.collapse import collapse
from core_compiler.scheduling.transforms.division import carry_division
from core_compiler.scheduling.transforms.double_buffer import double_buffer
from core_compiler.scheduling.transforms.edit import Refused, find_loop, has_loop, requires
from core_compiler.scheduling.transforms.hold import hold_quotients
from core_compiler.scheduling.transforms.interior import interior, is_chosen_by, ranges
from core_compiler.scheduling.transforms.jam import jam
from core_compiler.scheduling.transforms.layout import permute_dimensions, split_dimension
from core_compiler.scheduling.transforms.loops import (
    interchange,
    lift,
    mark,
    merge,
    never_empty,
    rename,
    rename_buffers,
    split,
    unit_loop,
    unswitch,
)
from core_compiler.scheduling.transforms.outline import dispatch, outline
from core_compiler.scheduling.transforms.place import place, publish
from core_compiler.scheduling.transforms.prefetch import prefetch_ahead, prefetch_behind
from core_compiler.scheduling.transforms.ragged import cover, round_up, specialise
from core_compiler.scheduling.transforms.reduction import fission, hoist, sink
from core_compiler.scheduling.transforms.registers import promote, share_loads, unroll, unroll_by
from core_compiler.scheduling.transforms.single import single_term
from core_compiler.scheduling.transforms.stage import pack_argument, stage
from core_compiler.scheduling.transforms.transpose import transpose_copy
from core_compiler.scheduling.transforms.turn import turn_stores
from core_compiler.scheduling.transforms.vectorise import vectorise

__all__ = [
    "Refused",
    "carry_division",
    "collapse",
    "cover",
    "dispatch",
    "double_buffer",
    "find_loop",
    "fission",
    "four_terms",
    "has_loop",
    "hoist",
    "hold_quotients",
    "interchange",
    "interior",
    "is_chosen_by",
    "jam",
    "lift",
    "mark",
    "merge",
    "never_empty",
    "outline",
    "pack_argument",
    "permute_dimensions",
    "place",
    "prefetch_ahead",
    "prefetch_behind",
    "promote",
    "publish",
    "ranges",
    "rename",
    "rename_buffers",
    "requires",
    "round_up",
    "share_loads",
    "single_term",
    "sink",
    "specialise",
    "split",
    "split_dimension",
    "stage",
    "transpose_copy",
    "turn_stores",
    "unit_loop",
    "unroll",
    "unroll_by",
    "unswitch",
    "vectorise",
]
