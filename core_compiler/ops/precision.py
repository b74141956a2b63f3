"""The behaviour of ops for values that mixed precision stores in a narrow float (bf16, f16).

An op widens its operands exactly, computes in f32 and rounds its result once (numerics contract),
so a declaration only says which values are stored narrow. Micikevicius et al., "Mixed precision
training" (ICLR 2018); the lists of ``torch.autocast`` (2.13).

The declarations differ from torch's lists if f32 inside an op makes f32 around it unnecessary:

- ``layer_norm``, ``rms_norm``, ``group_norm`` return f32 in torch.  Here they read and return the
  stored dtype, with statistics, scale and bias in f32, like torch's ``batch_norm``.
- ``mean`` follows its operand in torch.  Here it is a sum like the others: f32.
- ``sqrt``, ``sin``, ``cos``, ``erf``, ``exp2`` and the running extremes follow in torch.  Here they
  keep f32 with the rest of their families (deviations, angles of positions).
- An f32 parameter combined with a narrow value makes the result f32 in torch, unless it is the
  bias of a layer.  Here a parameter takes the dtype of the other operand: biases are separate ops,
  and positions and embeddings would otherwise widen everything after them.
- Scatters and ``atan2`` take the widest operand in torch.  Here they keep f32.
"""

from __future__ import annotations

from dataclasses import dataclass

#: All operands.
ALL = 1 << 30


@dataclass(frozen=True, slots=True)
class Narrow:
    """Rounds its first ``operands`` operands (a mask stays as it is) and stores a narrow result.

    These ops account for most of the work and of the bytes.
    """

    operands: int


@dataclass(frozen=True, slots=True)
class Follows:
    """Narrow if all of the first ``operands`` operands are, except parameters and constants.

    The widest decides. Normalisations keep f32 parameters and statistics.
    """

    operands: int = ALL


@dataclass(frozen=True, slots=True)
class Keeps:
    """Reads f32 and returns f32, for a ``reason``."""

    reason: str


Precision = Narrow | Follows | Keeps

FOLLOWS = Follows()
RANGE = Keeps("the results have a different range than the operands")
ANGLE = Keeps("an angle of many turns or near a pole would be lost")
TAILS = Keeps("the tails would be lost")
SUM = Keeps("a sum of many elements leaves the range and the digits of its terms")
RUNNING = Keeps("they are among sums along an axis")
WHOLE = Keeps("integers above 2^8 or 2^11 would be lost")
SHARES = Keeps("small values of a row would be lost")
LOSS = Keeps("the loss is f32")
RANDOM_VALUES = Keeps("it depends on the ops that read them")
SHARDS = Keeps("sums over shards are in f32")
GRADIENT = Keeps("they are created by differentiation")
EXPLICIT = Keeps("the program states the dtype")
MATRIX = Keeps("factors of a matrix lose more digits than its elements do")
REGION = Keeps("the ops inside have their own entries")
