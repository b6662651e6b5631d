"""Runs the checks: in this process, or on Spark."""
