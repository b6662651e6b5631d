"""One run: its phases, its folder, its verdict."""
