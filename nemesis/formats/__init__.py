"""The schedule file and the nemesis's other files: types, validation, reading, writing."""
