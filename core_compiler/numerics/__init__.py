"""The numerics contract: its functions, its primitives, and the references of the ops."""

#: The contract's version (docs/numerics.md): part of the key of every digest and cache.
CONTRACT_VERSION = 2
