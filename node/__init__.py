"""The broker: replication protocols, the log, and the wire format. Imports nothing else of ours."""
