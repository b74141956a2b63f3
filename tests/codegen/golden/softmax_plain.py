"""Kernel reduce_max_sub_exp_div: generated, compiled by Numba."""
NAME = 'reduce_max_sub_exp_div'
BUFFERS = 5  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, n1]
    y1 = buffer_f32(args, 1, 1)  # [n0, n1]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    s1 = size(args, 5)
    row = scratch_f32(scratch, 0, 2)
    row_end = (n1 * 4 + 63) // 64 * 64
    lanes = registers_f32(32, 3)
    lanes1 = registers_f32(32, 4)
    for i0 in range(lo, hi):
        for start in range(32):
            lanes[start] = f32(-inf)
        for k in range(0, n1, 32):
            for lane in range(min(n1 - k, 32)):
                lanes[lane] = maximum_f32(lanes[lane], x0[i0 * s0 + k + lane])
        for tree in range(16):
            lanes[tree] = maximum_f32(lanes[tree], lanes[tree + 16])
        for tree1 in range(8):
            lanes[tree1] = maximum_f32(lanes[tree1], lanes[tree1 + 8])
        for tree2 in range(4):
            lanes[tree2] = maximum_f32(lanes[tree2], lanes[tree2 + 4])
        for tree3 in range(2):
            lanes[tree3] = maximum_f32(lanes[tree3], lanes[tree3 + 2])
        for tree4 in range(1):
            lanes[tree4] = maximum_f32(lanes[tree4], lanes[tree4 + 1])
        v = lanes[0]
        for start1 in range(32):
            lanes1[start1] = f32(0.0)
        for k1 in range(0, n1, 32):
            for lane1 in range(min(n1 - k1, 32)):
                v_1 = k1 + lane1
                v_2 = exp_f32(x0[i0 * s0 + v_1] - v)
                row[v_1] = v_2
                lanes1[lane1] = lanes1[lane1] + v_2
        for tree5 in range(16):
            lanes1[tree5] = lanes1[tree5] + lanes1[tree5 + 16]
        for tree6 in range(8):
            lanes1[tree6] = lanes1[tree6] + lanes1[tree6 + 8]
        for tree7 in range(4):
            lanes1[tree7] = lanes1[tree7] + lanes1[tree7 + 4]
        for tree8 in range(2):
            lanes1[tree8] = lanes1[tree8] + lanes1[tree8 + 2]
        for tree9 in range(1):
            lanes1[tree9] = lanes1[tree9] + lanes1[tree9 + 1]
        v_3 = lanes1[0]
        for j0 in range(n1):
            y1[i0 * s1 + j0] = row[j0] / v_3
