"""The broker: replication protocols, the log, and the wire format. It imports no other package of
floodmark."""
