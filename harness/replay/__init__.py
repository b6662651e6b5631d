"""A saved schedule once more: replays, baseline runs, and the pages that need them."""
