"""Kernel transpose: generated, compiled by Numba."""
NAME = 'transpose'
BUFFERS = 2  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n1, n0]
    y1 = buffer_f32(args, 1, 1)  # [n0, n1]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    s1 = size(args, 5)
    i1_count = n1
    i1 = lo % i1_count
    i0 = lo // i1_count
    for item in range(lo, hi):
        y1[i0 * s1 + i1] = x0[i1 * s0 + i0]
        i1 += 1
        if i1 == i1_count:
            i1 = 0
            i0 += 1
