"""One run, of real processes: its phases, its folder, its verdict."""
