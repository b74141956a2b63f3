"""Kernel reduce_sum: generated, compiled by Numba."""
NAME = 'reduce_sum'
BUFFERS = 2  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n1, n0]
    y1 = buffer_f32(args, 1, 1)  # [n0]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    for i0_block in range(lo, hi):
        v = i0_block * 64
        v_1 = min(64, n0 - v)
        for i0 in range(0, v_1, 16):
            v_2 = min(16, v_1 - i0)
            v_3 = v + i0
            v_4 = splat_f32x16(f32(0.0))
            v_5 = v_4
            for chunk in range(0, n1, 256):
                v_6 = v_4
                for k in range(chunk, min(chunk + 256, n1)):
                    v_7 = v_6 + load_some_f32x16(x0, k * s0 + v_3, v_2)
                    v_6 = v_7
                v_8 = v_5 + v_6
                v_5 = v_8
            store_some_f32x16(y1, v_3, v_5, v_2)
