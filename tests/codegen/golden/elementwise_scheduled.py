"""Kernel add_max: generated, compiled by Numba."""
NAME = 'add_max'
BUFFERS = 3  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0]
    x1 = buffer_f32(args, 1, 1)  # [n0]
    y2 = buffer_f32(args, 2, 2)  # [n0]
    n0 = size(args, 3)
    for i0_block in range(lo, hi):
        v = i0_block * 4096
        v_1 = min(4096, n0 - v)
        v_2 = (v_1 // 64) * 64
        for i0 in range(0, v_2, 64):
            v_3 = v + i0
            v_4 = maximum_f32x64(load_f32x64(x0, v_3) + load_f32x64(x1, v_3), splat_f32x64(f32(0.0)))
            store_f32x64(y2, v_3, v_4)
        v_5 = v_1 - v_2
        for i0_rest in range(0, v_5, 16):
            v_6 = min(16, v_5 - i0_rest)
            v_7 = v + (v_2 + i0_rest)
            v_8 = load_some_f32x16(x0, v_7, v_6) + load_some_f32x16(x1, v_7, v_6)
            store_some_f32x16(y2, v_7, maximum_f32x16(v_8, splat_f32x16(f32(0.0))), v_6)
