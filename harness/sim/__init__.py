"""The simulated world: the brokers, clients and faults of a real run, under virtual time in one
process."""
