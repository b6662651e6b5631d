"""The log of a partition: its records on each replica, and the steps that led to them."""
