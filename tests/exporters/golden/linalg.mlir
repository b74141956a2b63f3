#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1) -> (d0)>
module {
  func.func @biased(%x: tensor<2x3xf32> {ml_program.identifier = "x"}, %bias: tensor<3xf32> {ml_program.identifier = "bias"}) -> (tensor<2x3xf32> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0.0 : f32
    %1 = tensor.empty() : tensor<2x3xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%x, %bias : tensor<2x3xf32>, tensor<3xf32>) outs(%1 : tensor<2x3xf32>) {
    ^bb0(%in: f32, %in$2: f32, %out: f32):
      %3 = arith.addf %in, %in$2 : f32
      linalg.yield %3 : f32
    } -> tensor<2x3xf32>
    %3 = tensor.empty() : tensor<2x3xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<2x3xf32>) outs(%3 : tensor<2x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      %5 = arith.maximumf %in, %0 : f32
      linalg.yield %5 : f32
    } -> tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
  func.func @half_exp(%x: tensor<4xf16> {ml_program.identifier = "x"}) -> (tensor<4xf16> {ml_program.identifier = "output0"}) {
    %0 = tensor.empty() : tensor<4xf16>
    %1 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%x : tensor<4xf16>) outs(%0 : tensor<4xf16>) {
    ^bb0(%in: f16, %out: f16):
      %2 = arith.extf %in : f16 to f32
      %3 = math.exp %2 : f32
      %4 = arith.truncf %3 : f32 to f16
      linalg.yield %4 : f16
    } -> tensor<4xf16>
    return %1 : tensor<4xf16>
  }
  func.func @to_bytes(%x: tensor<4xf32> {ml_program.identifier = "x"}) -> (tensor<4xi8> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0.0 : f32
    %1 = arith.constant 256.0 : f32
    %2 = arith.constant -1 : i8
    %3 = arith.constant 0 : i8
    %4 = tensor.empty() : tensor<4xi8>
    %5 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%4 : tensor<4xi8>) {
    ^bb0(%in: f32, %out: i8):
      %6 = arith.cmpf ole, %in, %0 : f32
      %7 = arith.cmpf oge, %in, %1 : f32
      %8 = arith.ori %6, %7 : i1
      %9 = arith.cmpf une, %in, %in : f32
      %10 = arith.ori %8, %9 : i1
      %11 = arith.select %10, %0, %in : f32
      %12 = arith.fptoui %11 : f32 to i8
      %13 = arith.select %7, %2, %12 : i8
      %14 = arith.select %6, %3, %13 : i8
      linalg.yield %14 : i8
    } -> tensor<4xi8>
    return %5 : tensor<4xi8>
  }
  func.func @quotient(%a: tensor<4xi32> {ml_program.identifier = "a"}, %b: tensor<4xi32> {ml_program.identifier = "b"}) -> (tensor<4xi32> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0 : i32
    %1 = arith.constant -1 : i32
    %2 = arith.constant 1 : i32
    %3 = tensor.empty() : tensor<4xi32>
    %4 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel"]} ins(%a, %b : tensor<4xi32>, tensor<4xi32>) outs(%3 : tensor<4xi32>) {
    ^bb0(%in: i32, %in$2: i32, %out: i32):
      %5 = arith.cmpi eq, %in$2, %0 : i32
      %6 = arith.cmpi eq, %in$2, %1 : i32
      %7 = arith.ori %5, %6 : i1
      %8 = arith.select %7, %2, %in$2 : i32
      %9 = arith.divsi %in, %8 : i32
      %10 = arith.subi %0, %in : i32
      %11 = arith.select %6, %10, %9 : i32
      %12 = arith.select %5, %0, %11 : i32
      linalg.yield %12 : i32
    } -> tensor<4xi32>
    return %4 : tensor<4xi32>
  }
  func.func @product(%a: tensor<2x3x4xbf16> {ml_program.identifier = "a"}, %b: tensor<2x4x5xbf16> {ml_program.identifier = "b"}) -> (tensor<2x3x5xbf16> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0.0 : f32
    %1 = tensor.empty() : tensor<2x3x5xf32>
    %2 = linalg.fill ins(%0 : f32) outs(%1 : tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
    %3 = linalg.batch_matmul ins(%a, %b : tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) outs(%2 : tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
    %4 = tensor.empty() : tensor<2x3x5xbf16>
    %5 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%3 : tensor<2x3x5xf32>) outs(%4 : tensor<2x3x5xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %6 = arith.truncf %in : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<2x3x5xbf16>
    return %5 : tensor<2x3x5xbf16>
  }
  func.func @image(%x: tensor<1x3x7x7xf32> {ml_program.identifier = "x"}, %w: tensor<4x3x3x3xf32> {ml_program.identifier = "w"}) -> (tensor<1x4x4x4xf32> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0.0 : f32
    %1 = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%2: index, %3: index, %4: index, %5: index):
      tensor.yield %0 : f32
    } : tensor<1x3x7x7xf32> to tensor<1x3x9x9xf32>
    %2 = tensor.empty() : tensor<1x4x4x4xf32>
    %3 = linalg.fill ins(%0 : f32) outs(%2 : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
    %4 = linalg.conv_2d_nchw_fchw {dilations = dense<[1, 1]> : tensor<2xi64>, strides = dense<[2, 2]> : tensor<2xi64>} ins(%1, %w : tensor<1x3x9x9xf32>, tensor<4x3x3x3xf32>) outs(%3 : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
    return %4 : tensor<1x4x4x4xf32>
  }
  func.func @pooled(%x: tensor<1x3x7x7xf32> {ml_program.identifier = "x"}) -> (tensor<1x3x4x4xf32> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0xFF800000 : f32
    %1 = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%2: index, %3: index, %4: index, %5: index):
      tensor.yield %0 : f32
    } : tensor<1x3x7x7xf32> to tensor<1x3x9x9xf32>
    %2 = tensor.empty() : tensor<1x3x4x4xf32>
    %3 = linalg.fill ins(%0 : f32) outs(%2 : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
    %4 = tensor.empty() : tensor<3x3xf32>
    %5 = linalg.pooling_nchw_max {dilations = dense<[1, 1]> : tensor<2xi64>, strides = dense<[2, 2]> : tensor<2xi64>} ins(%1, %4 : tensor<1x3x9x9xf32>, tensor<3x3xf32>) outs(%3 : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32>
    return %5 : tensor<1x3x4x4xf32>
  }
  func.func @summed(%x: tensor<2x3x4xf32> {ml_program.identifier = "x"}) -> (tensor<3xf32> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0.0 : f32
    %1 = tensor.empty() : tensor<3xf32>
    %2 = linalg.fill ins(%0 : f32) outs(%1 : tensor<3xf32>) -> tensor<3xf32>
    %3 = linalg.reduce ins(%x : tensor<2x3x4xf32>) outs(%2 : tensor<3xf32>) dimensions = [0, 2] (%in: f32, %init: f32) {
      %4 = arith.addf %in, %init : f32
      linalg.yield %4 : f32
    }
    return %3 : tensor<3xf32>
  }
  func.func @rows(%x: tensor<9x2xf32> {ml_program.identifier = "x"}, %at: tensor<4xi64> {ml_program.identifier = "at"}) -> (tensor<4x2xf32> {ml_program.identifier = "output0"}) {
    %0 = arith.constant 0 : i64
    %1 = arith.constant 8 : i64
    %2 = tensor.empty() : tensor<4x2xf32>
    %3 = linalg.generic {indexing_maps = [#map4, #map], iterator_types = ["parallel", "parallel"]} ins(%at : tensor<4xi64>) outs(%2 : tensor<4x2xf32>) {
    ^bb0(%in: i64, %out: f32):
      %4 = linalg.index 1 : index
      %5 = arith.maxsi %in, %0 : i64
      %6 = arith.minsi %5, %1 : i64
      %7 = arith.index_cast %6 : i64 to index
      %8 = tensor.extract %x[%7, %4] : tensor<9x2xf32>
      linalg.yield %8 : f32
    } -> tensor<4x2xf32>
    return %3 : tensor<4x2xf32>
  }
  func.func @spread(%x: tensor<2x3xf32> {ml_program.identifier = "x"}, %value: tensor<f32> {ml_program.identifier = "value"}) -> (tensor<4x5xf32> {ml_program.identifier = "output0"}) {
    %0 = tensor.extract %value[] : tensor<f32>
    %1 = tensor.extract_slice %x[0, 0] [2, 2] [1, 1] : tensor<2x3xf32> to tensor<2x2xf32>
    %2 = tensor.empty() : tensor<4x5xf32>
    %3 = linalg.fill ins(%0 : f32) outs(%2 : tensor<4x5xf32>) -> tensor<4x5xf32>
    %4 = tensor.insert_slice %1 into %3[0, 1] [2, 2] [1, 2] : tensor<2x2xf32> into tensor<4x5xf32>
    return %4 : tensor<4x5xf32>
  }
  func.func @either(%p: tensor<i1> {ml_program.identifier = "p"}, %x: tensor<4xf32> {ml_program.identifier = "x"}) -> (tensor<4xf32> {ml_program.identifier = "output0"}) {
    %0 = tensor.extract %p[] : tensor<i1>
    %1 = scf.if %0 -> (tensor<4xf32>) {
      %2 = tensor.empty() : tensor<4xf32>
      %3 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel"]} ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%2 : tensor<4xf32>) {
      ^bb0(%in: f32, %in$2: f32, %out: f32):
        %4 = arith.addf %in, %in$2 : f32
        linalg.yield %4 : f32
      } -> tensor<4xf32>
      scf.yield %3 : tensor<4xf32>
    } else {
      %2 = tensor.empty() : tensor<4xf32>
      %3 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%2 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %4 = arith.negf %in : f32
        linalg.yield %4 : f32
      } -> tensor<4xf32>
      scf.yield %3 : tensor<4xf32>
    }
    return %1 : tensor<4xf32>
  }
}
