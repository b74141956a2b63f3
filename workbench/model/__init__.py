"""Models, and what is done with them: imports, pipeline edits, compiles, fault searches."""
