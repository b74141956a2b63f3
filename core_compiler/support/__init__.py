"""What every part may use: errors, arrays of callers, files, processes of their own."""
