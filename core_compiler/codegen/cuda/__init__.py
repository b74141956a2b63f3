"""Kernel IR to machine code of NVIDIA GPUs: readable numba-cuda source, PTX, cubin, SASS."""
