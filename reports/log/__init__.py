"""The log of a partition: what each replica holds, and how it came to hold it."""
