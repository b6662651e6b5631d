"""The core of a broker, pure: its modules read no clock, socket or thread, get random numbers as an
argument, and never depend on the order of a set."""
