"""Kernel add_max: generated, compiled by Numba."""
NAME = 'add_max'
BUFFERS = 3  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0]
    x1 = buffer_f32(args, 1, 1)  # [n0]
    y2 = buffer_f32(args, 2, 2)  # [n0]
    n0 = size(args, 3)
    for i0 in range(lo, hi):
        y2[i0] = maximum_f32(x0[i0] + x1[i0], f32(0.0))
