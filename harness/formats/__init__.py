"""The files of a run and of a nightly run: types, validation, reading, writing."""
