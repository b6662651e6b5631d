"""A store in a browser."""
