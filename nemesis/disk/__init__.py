"""A disk in user space for one node: it loses exactly what was not synced, and fails on demand."""
