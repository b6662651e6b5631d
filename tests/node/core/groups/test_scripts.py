"""Scripts of the coordinator of groups: every command does what its file says."""

from __future__ import annotations

from tests.support.scripts import beside, proving

test_script = proving(beside(__file__))
