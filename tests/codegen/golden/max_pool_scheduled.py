"""Kernel max_pool: generated, compiled by Numba."""
NAME = 'max_pool'
BUFFERS = 2  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, e0, e1]
    y1 = buffer_f32(args, 1, 1)  # [n0, n1, n2]
    n0 = size(args, 2)
    n1 = size(args, 3)
    n2 = size(args, 4)
    n3 = size(args, 5)
    n4 = size(args, 6)
    c0 = size(args, 7)
    c1 = size(args, 8)
    s0 = size(args, 9)
    e0 = size(args, 10)
    s1 = size(args, 11)
    e1 = size(args, 12)
    c2 = size(args, 13)
    c3 = size(args, 14)
    s2 = size(args, 15)
    s3 = size(args, 16)
    v = (n2 + 4096 - 1) // 4096
    i1_count = n1
    i2_block_count = v
    i2_block = lo % i2_block_count
    i1 = lo // i2_block_count % i1_count
    i0 = lo // i2_block_count // i1_count
    for item in range(lo, hi):
        v_1 = i2_block * 4096
        for i2 in range(min(4096, n2 - v_1)):
            v_2 = v_1 + i2
            v_3 = f32(-inf)
            for tap in range(n3):
                v_4 = v_3
                for tap1 in range(n4):
                    v_5 = i1 * c1 + tap - 1
                    v_6 = v_2 * c1 + tap1 - 1
                    v_7 = x0[i0 * s0 + (min(max(v_5, 0), c0)) * s1 + min(max(v_6, 0), c0)]
                    v_8 = and_bool(and_bool(and_bool(v_5 >= 0, v_5 < c2), v_6 >= 0), v_6 < c3)
                    v_9 = select_f32(v_8, maximum_f32(v_4, v_7), v_4)
                    v_4 = v_9
                v_3 = v_4
            y1[i0 * s2 + i1 * s3 + v_2] = v_3
        i2_block += 1
        if i2_block == i2_block_count:
            i2_block = 0
            i1 += 1
            if i1 == i1_count:
                i1 = 0
                i0 += 1
