module {
  func.func @biased(%x: tensor<2x3xf32> {ml_program.identifier = "x"}, %bias: tensor<3xf32> {ml_program.identifier = "bias"}) -> (tensor<2x3xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const_shape"() {values = dense<[1, 3]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %1 = "tosa.const"() {values = dense<0.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
    %2 = "tosa.reshape"(%bias, %0) : (tensor<3xf32>, !tosa.shape<2>) -> tensor<1x3xf32>
    %3 = "tosa.add"(%x, %2) : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
    %4 = "tosa.maximum"(%3, %1) : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
  func.func @half_exp(%x: tensor<4xf16> {ml_program.identifier = "x"}) -> (tensor<4xf16> {ml_program.identifier = "output0"}) {
    %0 = "tosa.cast"(%x) : (tensor<4xf16>) -> tensor<4xf32>
    %1 = "tosa.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = "tosa.cast"(%1) : (tensor<4xf32>) -> tensor<4xf16>
    return %2 : tensor<4xf16>
  }
  func.func @to_bytes(%x: tensor<4xf32> {ml_program.identifier = "x"}) -> (tensor<4xi8> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %1 = "tosa.const"() {values = dense<255.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %2 = "tosa.greater"(%0, %x) : (tensor<1xf32>, tensor<4xf32>) -> tensor<4xi1>
    %3 = "tosa.ceil"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %4 = "tosa.floor"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %5 = "tosa.select"(%2, %3, %4) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %6 = "tosa.equal"(%5, %5) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %7 = "tosa.select"(%6, %5, %0) : (tensor<4xi1>, tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %8 = "tosa.maximum"(%7, %0) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %9 = "tosa.minimum"(%8, %1) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %10 = "tosa.cast"(%9) : (tensor<4xf32>) -> tensor<4xi32>
    %11 = "tosa.cast"(%10) : (tensor<4xi32>) -> tensor<4xi8>
    return %11 : tensor<4xi8>
  }
  func.func @quotient(%a: tensor<4xi32> {ml_program.identifier = "a"}, %b: tensor<4xi32> {ml_program.identifier = "b"}) -> (tensor<4xi32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const"() {values = dense<0> : tensor<1xi32>} : () -> tensor<1xi32>
    %1 = "tosa.const"() {values = dense<-1> : tensor<1xi32>} : () -> tensor<1xi32>
    %2 = "tosa.const"() {values = dense<1> : tensor<1xi32>} : () -> tensor<1xi32>
    %3 = "tosa.equal"(%b, %0) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi1>
    %4 = "tosa.equal"(%b, %1) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi1>
    %5 = "tosa.logical_or"(%3, %4) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
    %6 = "tosa.select"(%5, %2, %b) : (tensor<4xi1>, tensor<1xi32>, tensor<4xi32>) -> tensor<4xi32>
    %7 = "tosa.intdiv"(%a, %6) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %8 = "tosa.equal"(%b, %1) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi1>
    %9 = "tosa.sub"(%0, %a) : (tensor<1xi32>, tensor<4xi32>) -> tensor<4xi32>
    %10 = "tosa.select"(%8, %9, %7) : (tensor<4xi1>, tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %11 = "tosa.select"(%3, %0, %10) : (tensor<4xi1>, tensor<1xi32>, tensor<4xi32>) -> tensor<4xi32>
    return %11 : tensor<4xi32>
  }
  func.func @product(%a: tensor<2x3x4xbf16> {ml_program.identifier = "a"}, %b: tensor<2x4x5xbf16> {ml_program.identifier = "b"}) -> (tensor<2x3x5xbf16> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const"() {values = dense<0.0> : tensor<1xbf16>} : () -> tensor<1xbf16>
    %1 = "tosa.matmul"(%a, %b, %0, %0) : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<2x3x5xf32>
    %2 = "tosa.cast"(%1) : (tensor<2x3x5xf32>) -> tensor<2x3x5xbf16>
    return %2 : tensor<2x3x5xbf16>
  }
  func.func @image(%x: tensor<1x3x7x7xf32> {ml_program.identifier = "x"}, %w: tensor<4x3x3x3xf32> {ml_program.identifier = "w"}) -> (tensor<1x4x4x4xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %1 = "tosa.transpose"(%x) {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x7x7xf32>) -> tensor<1x7x7x3xf32>
    %2 = "tosa.transpose"(%w) {perms = array<i32: 0, 2, 3, 1>} : (tensor<4x3x3x3xf32>) -> tensor<4x3x3x3xf32>
    %3 = "tosa.conv2d"(%1, %2, %0, %0, %0) {pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, acc_type = f32} : (tensor<1x7x7x3xf32>, tensor<4x3x3x3xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x4x4xf32>
    %4 = "tosa.transpose"(%3) {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
    return %4 : tensor<1x4x4x4xf32>
  }
  func.func @pooled(%x: tensor<1x3x7x7xf32> {ml_program.identifier = "x"}) -> (tensor<1x3x4x4xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.transpose"(%x) {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x7x7xf32>) -> tensor<1x7x7x3xf32>
    %1 = "tosa.max_pool2d"(%0) {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, pad = array<i64: 1, 1, 1, 1>} : (tensor<1x7x7x3xf32>) -> tensor<1x4x4x3xf32>
    %2 = "tosa.transpose"(%1) {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x3xf32>) -> tensor<1x3x4x4xf32>
    return %2 : tensor<1x3x4x4xf32>
  }
  func.func @summed(%x: tensor<2x3x4xf32> {ml_program.identifier = "x"}) -> (tensor<3xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const_shape"() {values = dense<[3]> : tensor<1xindex>} : () -> !tosa.shape<1>
    %1 = "tosa.reduce_sum"(%x) {axis = 0 : i32} : (tensor<2x3x4xf32>) -> tensor<1x3x4xf32>
    %2 = "tosa.reduce_sum"(%1) {axis = 2 : i32} : (tensor<1x3x4xf32>) -> tensor<1x3x1xf32>
    %3 = "tosa.reshape"(%2, %0) : (tensor<1x3x1xf32>, !tosa.shape<1>) -> tensor<3xf32>
    return %3 : tensor<3xf32>
  }
  func.func @rows(%x: tensor<9x2xf32> {ml_program.identifier = "x"}, %at: tensor<4xi64> {ml_program.identifier = "at"}) -> (tensor<4x2xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const"() {values = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %1 = "tosa.const"() {values = dense<8> : tensor<1xi64>} : () -> tensor<1xi64>
    %2 = "tosa.const_shape"() {values = dense<[1, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %3 = "tosa.const_shape"() {values = dense<[1, 9, 2]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %4 = "tosa.const_shape"() {values = dense<[4, 2]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %5 = "tosa.maximum"(%at, %0) : (tensor<4xi64>, tensor<1xi64>) -> tensor<4xi64>
    %6 = "tosa.minimum"(%5, %1) : (tensor<4xi64>, tensor<1xi64>) -> tensor<4xi64>
    %7 = "tosa.cast"(%6) : (tensor<4xi64>) -> tensor<4xi32>
    %8 = "tosa.reshape"(%7, %2) : (tensor<4xi32>, !tosa.shape<2>) -> tensor<1x4xi32>
    %9 = "tosa.reshape"(%x, %3) : (tensor<9x2xf32>, !tosa.shape<3>) -> tensor<1x9x2xf32>
    %10 = "tosa.gather"(%9, %8) : (tensor<1x9x2xf32>, tensor<1x4xi32>) -> tensor<1x4x2xf32>
    %11 = "tosa.reshape"(%10, %4) : (tensor<1x4x2xf32>, !tosa.shape<2>) -> tensor<4x2xf32>
    return %11 : tensor<4x2xf32>
  }
  func.func @spread(%x: tensor<2x3xf32> {ml_program.identifier = "x"}, %value: tensor<f32> {ml_program.identifier = "value"}) -> (tensor<4x5xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.const_shape"() {values = dense<[1]> : tensor<1xindex>} : () -> !tosa.shape<1>
    %1 = "tosa.const_shape"() {values = dense<[2, 3, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %2 = "tosa.const_shape"() {values = dense<[0, 0, 0, 0, 0, 1]> : tensor<6xindex>} : () -> !tosa.shape<6>
    %3 = "tosa.const_shape"() {values = dense<[2, 6]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %4 = "tosa.const_shape"() {values = dense<[0, 0]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %5 = "tosa.const_shape"() {values = dense<[2, 5]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %6 = "tosa.const_shape"() {values = dense<[2, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %7 = "tosa.const_shape"() {values = dense<[0, 2, 1, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %8 = "tosa.reshape"(%value, %0) : (tensor<f32>, !tosa.shape<1>) -> tensor<1xf32>
    %9 = "tosa.reshape"(%x, %1) : (tensor<2x3xf32>, !tosa.shape<3>) -> tensor<2x3x1xf32>
    %10 = "tosa.pad"(%9, %2, %8) : (tensor<2x3x1xf32>, !tosa.shape<6>, tensor<1xf32>) -> tensor<2x3x2xf32>
    %11 = "tosa.reshape"(%10, %3) : (tensor<2x3x2xf32>, !tosa.shape<2>) -> tensor<2x6xf32>
    %12 = "tosa.slice"(%11, %4, %5) : (tensor<2x6xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x5xf32>
    %13 = "tosa.slice"(%12, %4, %6) : (tensor<2x5xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x4xf32>
    %14 = "tosa.pad"(%13, %7, %8) : (tensor<2x4xf32>, !tosa.shape<4>, tensor<1xf32>) -> tensor<4x5xf32>
    return %14 : tensor<4x5xf32>
  }
  func.func @either(%p: tensor<i1> {ml_program.identifier = "p"}, %x: tensor<4xf32> {ml_program.identifier = "x"}) -> (tensor<4xf32> {ml_program.identifier = "output0"}) {
    %0 = "tosa.cond_if"(%p, %x) ({
    ^bb0(%1: tensor<4xf32>):
      %2 = "tosa.add"(%1, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "tosa.yield"(%2) : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%1: tensor<4xf32>):
      %2 = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
      %3 = "tosa.negate"(%1, %2, %2) : (tensor<4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<4xf32>
      "tosa.yield"(%3) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
