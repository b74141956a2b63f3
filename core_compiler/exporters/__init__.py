"""What a module or a compile looks like outside: for notebooks, other compilers, reports."""
