"""Kernels: the numerics contract, kernel IR, schedules."""

#: The contract's version (docs/numerics.md): part of every digest's and every cache's key.
CONTRACT_VERSION = 2
