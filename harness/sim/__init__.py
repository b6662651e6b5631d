"""The simulated world: brokers, clients and faults under virtual time in one process."""
