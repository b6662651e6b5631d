"""Nightly runs: hours of search, searches for known bugs, storms and replays, recorded in a journal
and shown on one page."""
