"""The corpus of a search: protocol, and the numbers of schedules that the grammar drew.

`python -m tests.lab corpus` chooses them: each does something that few schedules do."""

from typing import Final

CORPUS: Final = """\
kafka 4 16 41 43 45 46 66 102 110 114 131 157 184 188 191 203 204 208 214 221 235 252
kip-279 41 46 61 66 102 106 110 114 119 122 131 157 184 188 191 198 204 208 214 235 252 256
quorum 1 10 22 25 61 74 79 88 95 102 107 143 145 156 167 182 189 195 265 268 274 298
"""
