"""A mutation fuzzer of the importers: files that exist, damaged at random, must be imported or
refused with a reason, within bounds of time and memory.

``python -m tests.fuzz onnx|onnx-passes|stablehlo --inputs N``; see ``__main__``.
"""
