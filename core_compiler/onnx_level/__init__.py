"""ONNX graphs as modules of our IR: the level before import, with passes of its own.

A module of level ``onnx`` holds a model as its file does: a node is an op ``onnx.<OpType>`` (of
another domain ``onnx.<domain>.<OpType>``), a tensor a value of its name, an initializer an op
``onnx.initializer``, a subgraph a region, a local function a function.  So its passes are stepped,
compared, checked and recorded like those of any other level, and what they made is written out as a
model again.
"""
