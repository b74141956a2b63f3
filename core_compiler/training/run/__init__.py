"""Running a training step: data in order, checkpoints, the files of a run, progress."""
