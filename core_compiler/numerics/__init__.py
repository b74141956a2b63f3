"""The numerics contract: its functions, its primitives, and the references of the ops."""

#: The contract's version (docs/numerics.md): part of every digest's and every cache's key.
CONTRACT_VERSION = 2
