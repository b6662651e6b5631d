"""The real world: broker processes, the link hub, sockets and the host's monotonic clock."""
