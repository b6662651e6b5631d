"""The pages of a store: its nightly runs and its list of runs."""
