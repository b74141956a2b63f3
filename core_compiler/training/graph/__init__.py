"""The training step as IR: gradients, losses, precision, phases, roles of arguments and results."""
