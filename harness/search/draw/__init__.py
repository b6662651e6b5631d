"""The drawing of schedules for both worlds: a grammar, variations of a corpus, storms."""
