"""Kernel matmul_max: generated, compiled by Numba."""
NAME = 'matmul_max'
BUFFERS = 3  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, n2]
    x1 = buffer_f32(args, 1, 1)  # [n2, n1]
    y2 = buffer_f32(args, 2, 2)  # [n0, n1]
    n0 = size(args, 3)
    n1 = size(args, 4)
    n2 = size(args, 5)
    s0 = size(args, 6)
    s1 = size(args, 7)
    s2 = size(args, 8)
    n_count = n1
    n = lo % n_count
    m = lo // n_count
    for item in range(lo, hi):
        v = f32(0.0)
        for chunk in range(0, n2, 256):
            v_1 = f32(0.0)
            for k in range(chunk, min(chunk + 256, n2)):
                v_2 = fma_f32(x0[m * s0 + k], x1[k * s1 + n], v_1)
                v_1 = v_2
            v_3 = select_f32(chunk == 0, v_1, v + v_1)
            v = v_3
        y2[m * s2 + n] = maximum_f32(v, f32(0.0))
        n += 1
        if n == n_count:
            n = 0
            m += 1
