"""Execution of a training step: data order, checkpoints, the files of a run, progress."""
