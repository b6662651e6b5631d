"""Faults over time, and as sentences."""
