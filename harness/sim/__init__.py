"""The simulated world: the same brokers, clients and faults under virtual time."""
