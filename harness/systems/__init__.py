"""Systems under test: the interface, and its implementations."""
