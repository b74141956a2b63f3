module attributes {core.symbols = {batch = [1, -1]}, core.weights = {w_e9b84aa351ce = "e9b84aa351ceed298bb60da1f7e6a5ae8dbf1513c0a799e3d14c8b8ac00b18d3"}} {
  "core.func"() ({
  ^bb0(%x: tensor<?x200xf32, {dims = ["batch", 200]}>, %state: tensor<?x3xf32, {dims = ["batch", 3]}>):
    %w = "core.constant"() {value = dense_resource<w_e9b84aa351ce> : tensor<200x3xf32>} : () -> tensor<200x3xf32> loc(fused<"import">["model.py":7:0])
    %y = "core.matmul"(%x, %w) : (tensor<?x200xf32, {dims = ["batch", 200]}>, tensor<200x3xf32>) -> tensor<?x3xf32, {dims = ["batch", 3]}> loc(fused<"decompose">["model.py":7:0])
    %0 = "core.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32> loc(fused<"make_nan">[unknown])
    %looped = "core.while"(%y) ({
    ^bb0(%y$2: tensor<?x3xf32, {dims = ["batch", 3]}>):
      %1 = "core.add"(%y$2, %state) : (tensor<?x3xf32, {dims = ["batch", 3]}>, tensor<?x3xf32, {dims = ["batch", 3]}>) -> tensor<?x3xf32, {dims = ["batch", 3]}>
      "core.yield"(%1) : (tensor<?x3xf32, {dims = ["batch", 3]}>) -> ()
    }) {limit = 3 : i64, unroll = true} : (tensor<?x3xf32, {dims = ["batch", 3]}>) -> tensor<?x3xf32, {dims = ["batch", 3]}>
    "core.return"(%looped, %0) : (tensor<?x3xf32, {dims = ["batch", 3]}>, tensor<f32>) -> ()
  }) {level = "tensor", sym_name = "main", aliases = [[0, 1]]} : () -> ()
  "core.func"() ({
  ^bb0(%a: memref<?x4xf32, strided<[?, 1], offset: 0>, {dims = ["M", 4], space = "dram", strides = ["s0", 1]}>, %M: index):
    "kernel.for"(%M) ({
    ^bb0(%i: index):
      %v = "kernel.load"(%a, %i) : (memref<?x4xf32, strided<[?, 1], offset: 0>, {dims = ["M", 4], space = "dram", strides = ["s0", 1]}>, index) -> vector<4xf32>
      "kernel.store"(%v, %a, %i) : (vector<4xf32>, memref<?x4xf32, strided<[?, 1], offset: 0>, {dims = ["M", 4], space = "dram", strides = ["s0", 1]}>, index) -> ()
      "kernel.yield"() : () -> ()
    }) : (index) -> ()
    "core.return"() : () -> ()
  }) {level = "kernel", sym_name = "copy"} : () -> ()
}
