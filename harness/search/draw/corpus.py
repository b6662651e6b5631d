"""The corpus of a search: protocol, and the numbers of schedules that the grammar drew.

`python -m tests.lab corpus` chooses them: each does something that few schedules do."""

from typing import Final

CORPUS: Final = """\
kafka 2 4 6 7 9 13 19 24 25 29 34 44 46 50 54 56 58 69 70 71
kip-279 2 4 8 9 10 13 19 24 25 29 34 44 46 50 54 56 57 58 70 71
quorum 1 2 4 6 8 10 14 16 21 30 37 38 45 47 52 54 57 63 65 68
"""
