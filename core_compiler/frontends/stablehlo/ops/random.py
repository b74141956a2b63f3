"""Random numbers that no program can expect to meet again."""

from __future__ import annotations

from core_compiler.frontends.stablehlo.table import NotSupported, op


@op("rng_bit_generator")
def rng_bit_generator(b, state):
    raise NotSupported("its numbers are the machine's own; draw them with jax.random")


@op("rng")
def rng(b, *_operands):
    raise NotSupported("random numbers without a seed; draw them with jax.random")
