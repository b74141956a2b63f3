"""Training runs of the command line: what is run, on which data, and how to repeat it."""
