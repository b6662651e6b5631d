"""Faults over time, and in words."""
