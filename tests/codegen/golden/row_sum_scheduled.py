"""Kernel reduce_sum: generated, compiled by Numba."""
NAME = 'reduce_sum'
BUFFERS = 2  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, n1]
    y1 = buffer_f32(args, 1, 1)  # [n0]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    for i0 in range(lo, hi):
        v = splat_f32x16(f32(0.0))
        v_1 = (n1 // 32) * 32
        v_2 = v
        v_3 = v
        for k in range(0, v_1, 32):
            v_4 = v_2 + load_f32x16(x0, i0 * s0 + k)
            v_5 = v_3 + load_f32x16(x0, i0 * s0 + k + 16)
            v_2 = v_4
            v_3 = v_5
        v_6 = n1 - v_1
        v_7 = lanes_i64x16()
        v_8 = select_f32x16(lt_i64x16(v_7, splat_i64x16(v_6)), v_2 + load_some_f32x16(x0, i0 * s0 + v_1, v_6), v_2)
        v_9 = v_6 - 16
        v_10 = select_f32x16(lt_i64x16(v_7, splat_i64x16(v_9)), v_3 + load_some_f32x16(x0, i0 * s0 + v_1 + 16, v_9), v_3)
        v_11 = v_8 + v_10
        v_12 = shuffle_f32x16(v_11, v_11, (8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7))
        v_13 = v_11 + v_12
        v_14 = shuffle_f32x16(v_13, v_13, (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3))
        v_15 = v_13 + v_14
        v_16 = shuffle_f32x16(v_15, v_15, (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1))
        v_17 = v_15 + v_16
        v_18 = shuffle_f32x16(v_17, v_17, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0))
        y1[i0] = lane_f32x16(v_17 + v_18, 0)
