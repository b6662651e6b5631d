"""Scripts of links: every command does what its file says (`tests/support/scripts.py`)."""

from __future__ import annotations

import pytest

from tests.support.scripts import beside, proving

test_script = pytest.mark.integration(proving(beside(__file__)))
