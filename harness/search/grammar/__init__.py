"""A grammar of schedules: atoms that the fault kinds declare, composed around events and roles."""
