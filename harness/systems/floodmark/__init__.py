"""Our own brokers as a system under test: real processes, ZeroMQ between them, LMDB under them."""
