"""The corpus of a search: protocol, and the numbers of schedules that the grammar drew.

`python -m tests.lab corpus` chooses them: each does something that few schedules do."""

from typing import Final

CORPUS: Final = """\
kafka 0 1 6 7 10 13 15 16 25 28 29 30 31 32 37 41 44 45 46 47 50 54 56 57
kip-279 0 1 6 10 13 15 16 25 27 28 29 31 32 34 37 41 44 45 47 49 50 54 56 57
quorum 1 3 6 10 12 17 19 22 23 24 26 31 32 37 41 43 44 47 49 50 52 55 56 57
"""
