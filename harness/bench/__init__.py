"""Benchmarks of broker, checker, simulator and page."""
