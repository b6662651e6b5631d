"""The corpus of the mixed search: protocol, generator, and the numbers of schedules that it drew.

`python -m tests.lab corpus` chooses them: each does something that few schedules do."""

from typing import Final

CORPUS: Final = """\
kafka scenarios 0 17 18 21 23 28 53 64 79 81 82 87 89 92 100 110 114 121 122 125
kafka grammar 2 4 6 7 9 13 19 24 25 29 34 44 46 50 54 56 58 69 70 71
kip-279 scenarios 0 5 9 12 13 14 17 18 21 23 28 32 40 43 55 58 59 64 66 67
kip-279 grammar 2 4 8 9 10 13 19 24 25 29 34 44 46 50 54 56 57 58 70 71
quorum scenarios 4 6 10 13 15 21 23 24 29 31 39 43 47 51 53 60 61 66 69 74
quorum grammar 1 2 4 6 8 10 14 16 21 30 37 38 45 47 52 54 57 63 65 68
"""
