"""Scripts of the core: every command does what its file says (`tests/support/scripts.py`)."""

from __future__ import annotations

from tests.support.scripts import beside, proving

test_script = proving(beside(__file__))
