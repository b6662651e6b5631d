"""Links between nodes: rules, the table that applies them, and the hub process."""
