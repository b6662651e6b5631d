"""The files of a run, a search and a nightly run: their types, validation, reading and writing."""
