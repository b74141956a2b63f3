"""Programs after public bug reports of other compilers, each against the value that is right."""
