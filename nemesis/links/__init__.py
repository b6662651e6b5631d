"""Links between nodes: rules, the table that applies them, and what carries them out: the hub
process, the TCP proxy, the kernel."""
