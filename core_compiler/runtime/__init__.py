"""Running compiled programs: devices, executables, kernel cache, profiler, limits."""
