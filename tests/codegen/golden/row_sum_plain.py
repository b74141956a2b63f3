"""Kernel reduce_sum: generated, compiled by Numba."""
NAME = 'reduce_sum'
BUFFERS = 3  # told apart by number: no two overlap


def kernel(args, lo, hi, scratch):
    x0 = buffer_f32(args, 0, 0)  # [n0, n1]
    y1 = buffer_f32(args, 1, 1)  # [n0]
    n0 = size(args, 2)
    n1 = size(args, 3)
    s0 = size(args, 4)
    lanes = registers_f32(32, 2)
    for i0 in range(lo, hi):
        for start in range(32):
            lanes[start] = f32(0.0)
        for k in range(0, n1, 32):
            for lane in range(min(n1 - k, 32)):
                lanes[lane] = lanes[lane] + x0[i0 * s0 + k + lane]
        for tree in range(16):
            lanes[tree] = lanes[tree] + lanes[tree + 16]
        for tree1 in range(8):
            lanes[tree1] = lanes[tree1] + lanes[tree1 + 8]
        for tree2 in range(4):
            lanes[tree2] = lanes[tree2] + lanes[tree2 + 4]
        for tree3 in range(2):
            lanes[tree3] = lanes[tree3] + lanes[tree3 + 2]
        for tree4 in range(1):
            lanes[tree4] = lanes[tree4] + lanes[tree4 + 1]
        y1[i0] = lanes[0]
