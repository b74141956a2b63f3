"""Running compiled programs: devices, executables, kernel cache, profiler, this machine's limits."""
