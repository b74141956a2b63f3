"""Lowering of groups of tensor ops to kernels: plain loops that define the meaning."""
