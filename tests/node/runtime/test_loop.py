"""Scripts of the loop: every turn is in the order that its file says."""

from __future__ import annotations

from tests.support.scripts import beside, proving

test_script = proving(beside(__file__))
