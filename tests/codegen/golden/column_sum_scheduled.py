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
        v_2 = (v_1 // 64) * 64
        for i0 in range(0, v_2, 64):
            v_3 = v + i0
            v_4 = splat_f32x64(f32(0.0))
            v_5 = v_4
            for chunk in range(0, n1, 256):
                v_6 = v_4
                for k in range(chunk, min(chunk + 256, n1)):
                    v_7 = v_6 + load_f32x64(x0, k * s0 + v_3)
                    v_6 = v_7
                v_8 = v_5 + v_6
                v_5 = v_8
            store_f32x64(y1, v_3, v_5)
        v_9 = v_1 - v_2
        for i0_rest in range(0, v_9, 16):
            v_10 = min(16, v_9 - i0_rest)
            v_11 = v + (v_2 + i0_rest)
            v_12 = splat_f32x16(f32(0.0))
            v_13 = v_12
            for chunk_1 in range(0, n1, 256):
                v_14 = v_12
                for k_1 in range(chunk_1, min(chunk_1 + 256, n1)):
                    v_15 = v_14 + load_some_f32x16(x0, k_1 * s0 + v_11, v_10)
                    v_14 = v_15
                v_16 = v_13 + v_14
                v_13 = v_16
            store_some_f32x16(y1, v_11, v_13, v_10)
