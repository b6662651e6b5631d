"""A night: hours of search, museum, storms and replays, kept as rows and told on one page."""
