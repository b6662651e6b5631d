"""The faults: what each one does, and how it is undone."""
