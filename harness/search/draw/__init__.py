"""The drawing of schedules: a grammar for the simulated world, families for real processes."""
