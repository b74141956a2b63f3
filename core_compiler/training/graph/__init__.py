"""The training step as IR: gradients, losses, precision, phases, what arguments and results are."""
