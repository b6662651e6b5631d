"""Evidence: the facts about each partition of a run as sorted columns, which checks are functions
of. Imports only `formats`."""
