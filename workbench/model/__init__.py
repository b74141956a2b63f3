"""Models and operations on them: imports, pipeline edits, compiles, fault searches."""
