"""Nightly runs: hours of search, known bugs, storms and replays, kept as a journal and one page."""
