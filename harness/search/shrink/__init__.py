"""The shrinking of a failing schedule, and its explanation."""
