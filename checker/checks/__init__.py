"""The checks: pure functions over all facts of one (run, partition) or of one run."""
