"""Further runs of a saved schedule: replays, baseline runs, and the pages that need them."""
