"""Training runs of the command line: their definition, their data, and their repetition."""
