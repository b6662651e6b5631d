"""The corpus of the mixed search: protocol, generator, and the numbers of schedules that it drew.

`python -m tests.lab corpus` chooses them: each does something that few schedules do."""

from typing import Final

CORPUS: Final = """\
kafka scenarios 1 2
"""
