"""The runtime of compiled programs: devices, executables, kernel cache, profiler, limits."""
