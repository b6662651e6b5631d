"""The schedule file and the other files the nemesis writes: types, validation, reading, writing."""
