"""The pure core: no clock, socket, thread, randomness of its own, or set order."""
