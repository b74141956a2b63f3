"""Kernel reduce_max_sub_exp_div: generated, compiled by Numba."""
NAME = 'reduce_max_sub_exp_div'
BUFFERS = 3  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, n1]
    y1 = buffer_f32(args, 1, 1)  # [n0, n1]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    s1 = size(args, 5)
    row = scratch_f32(scratch, 0, 2)
    row_end = (n1 * 4 + 63) // 64 * 64
    for i0 in range(lo, hi):
        v = splat_f32x16(f32(-inf))
        v_1 = (n1 // 32) * 32
        v_2 = v
        v_3 = v
        for k in range(0, v_1, 32):
            v_4 = maximum_f32x16(v_2, load_f32x16(x0, i0 * s0 + k))
            v_5 = maximum_f32x16(v_3, load_f32x16(x0, i0 * s0 + k + 16))
            v_2 = v_4
            v_3 = v_5
        v_6 = n1 - v_1
        v_7 = maximum_f32x16(v_2, load_some_f32x16(x0, i0 * s0 + v_1, v_6))
        v_8 = lanes_i64x16()
        v_9 = lt_i64x16(v_8, splat_i64x16(v_6))
        v_10 = v_6 - 16
        v_11 = v_1 + 16
        v_12 = maximum_f32x16(v_3, load_some_f32x16(x0, i0 * s0 + v_11, v_10))
        v_13 = lt_i64x16(v_8, splat_i64x16(v_10))
        v_14 = maximum_f32x16(select_f32x16(v_9, v_7, v_2), select_f32x16(v_13, v_12, v_3))
        v_15 = shuffle_f32x16(v_14, v_14, (8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7))
        v_16 = maximum_f32x16(v_14, v_15)
        v_17 = shuffle_f32x16(v_16, v_16, (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3))
        v_18 = maximum_f32x16(v_16, v_17)
        v_19 = shuffle_f32x16(v_18, v_18, (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1))
        v_20 = maximum_f32x16(v_18, v_19)
        v_21 = shuffle_f32x16(v_20, v_20, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0))
        v_22 = lane_f32x16(maximum_f32x16(v_20, v_21), 0)
        v_23 = splat_f32x16(f32(0.0))
        v_24 = v_23
        v_25 = v_23
        for k1 in range(0, v_1, 32):
            v_26 = splat_f32x16(v_22)
            v_27 = exp_f32x16(load_f32x16(x0, i0 * s0 + k1) - v_26)
            store_f32x16(row, k1, v_27)
            v_28 = v_24 + v_27
            v_29 = k1 + 16
            v_30 = exp_f32x16(load_f32x16(x0, i0 * s0 + v_29) - v_26)
            store_f32x16(row, v_29, v_30)
            v_31 = v_25 + v_30
            v_24 = v_28
            v_25 = v_31
        v_32 = splat_f32x16(v_22)
        v_33 = exp_f32x16(load_some_f32x16(x0, i0 * s0 + v_1, v_6) - v_32)
        store_some_f32x16(row, v_1, v_33, v_6)
        v_34 = exp_f32x16(load_some_f32x16(x0, i0 * s0 + v_11, v_10) - v_32)
        store_some_f32x16(row, v_11, v_34, v_10)
        v_35 = select_f32x16(v_9, v_24 + v_33, v_24) + select_f32x16(v_13, v_25 + v_34, v_25)
        v_36 = shuffle_f32x16(v_35, v_35, (8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7))
        v_37 = v_35 + v_36
        v_38 = shuffle_f32x16(v_37, v_37, (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3))
        v_39 = v_37 + v_38
        v_40 = shuffle_f32x16(v_39, v_39, (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1))
        v_41 = v_39 + v_40
        v_42 = shuffle_f32x16(v_41, v_41, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0))
        v_43 = lane_f32x16(v_41 + v_42, 0)
        v_44 = (n1 // 64) * 64
        for j0 in range(0, v_44, 64):
            store_f32x64(y1, i0 * s1 + j0, load_f32x64(row, j0) / splat_f32x64(v_43))
        v_45 = n1 - v_44
        for j0_rest in range(0, v_45, 16):
            v_46 = min(16, v_45 - j0_rest)
            v_47 = v_44 + j0_rest
            store_some_f32x16(y1, i0 * s1 + v_47, load_some_f32x16(row, v_47, v_46) / splat_f32x16(v_43), v_46)
