"""ONNX graphs as modules of the IR: the level before import, with its own passes.

A module of level ``onnx`` represents a model as its file does: a node is an op ``onnx.<OpType>``
(of another domain ``onnx.<domain>.<OpType>``), a tensor a value with its name, an initializer an op
``onnx.initializer``, a subgraph a region, a local function a function.  So its passes are stepped,
compared, checked and recorded like those of any other level, and their result can be written as a
model again.
"""
