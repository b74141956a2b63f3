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
    v = (n1 + 64 - 1) // 64
    i1_block_count = v
    i1_block = lo % i1_block_count
    i0_block = lo // i1_block_count
    for item in range(lo, hi):
        v_1 = i0_block * 16
        v_2 = min(16, n0 - v_1)
        v_3 = i1_block * 64
        v_4 = min(64, n1 - v_3)
        for i1 in range(0, v_4, 16):
            v_5 = min(16, v_4 - i1)
            for i0 in range(v_2):
                v_6 = v_1 + i0
                v_7 = v_3 + i1
                store_some_f32x16(y1, v_6 * s1 + v_7, gather_f32x16(x0, v_7 * s0 + v_6, s0, v_5), v_5)
        i1_block += 1
        if i1_block == i1_block_count:
            i1_block = 0
            i0_block += 1
