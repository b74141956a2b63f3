"""Checks after each pass, bisection and op history: tools to find which pass broke a result."""
