"""Readers: the files of a run become tables and facts. Imports `formats` and `evidence`."""
