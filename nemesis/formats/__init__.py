"""The schedule file and the other files that the nemesis writes: types, validation, reading,
writing."""
