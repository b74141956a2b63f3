"""Kernel cumsum: generated, compiled by Numba."""
NAME = 'cumsum'
BUFFERS = 2  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, n1]
    y0 = buffer_f32(args, 1, 1)  # [n2, n3]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    n2 = size(args, 5)
    n3 = size(args, 6)
    s1 = size(args, 7)
    for i0 in range(lo, hi):
        v = f32(0.0)
        for chunk in range(0, n1, 256):
            v_1 = chunk == 0
            v_2 = f32(0.0)
            for r in range(chunk, min(chunk + 256, n1)):
                v_3 = x0[i0 * s0 + r]
                v_4 = select_f32(r == chunk, v_3, v_2 + v_3)
                y0[i0 * s1 + r] = select_f32(v_1, v_4, v + v_4)
                v_2 = v_4
            v_5 = select_f32(v_1, v_2, v + v_2)
            v = v_5
