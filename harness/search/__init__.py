"""The search for a schedule that breaks a protocol or a system, and the shrinking of it."""
