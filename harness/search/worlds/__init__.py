"""The worlds in which a search runs a schedule: simulated, and real processes."""
