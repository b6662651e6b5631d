"""A disk in user space for one node: a power cut takes exactly the data that was not synced, and it
fails on demand."""
