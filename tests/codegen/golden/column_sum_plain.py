"""Kernel reduce_sum: generated, compiled by Numba."""
NAME = 'reduce_sum'
BUFFERS = 2  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n1, n0]
    y1 = buffer_f32(args, 1, 1)  # [n0]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    for i0 in range(lo, hi):
        v = f32(0.0)
        for chunk in range(0, n1, 256):
            v_1 = f32(0.0)
            for k in range(chunk, min(chunk + 256, n1)):
                v_2 = v_1 + x0[k * s0 + i0]
                v_1 = v_2
            v_3 = v + v_1
            v = v_3
        y1[i0] = v
