"""The process of a disk does not outlive its threads."""

from __future__ import annotations

from tests.support import python_process

SCRIPT = """
import threading
from nemesis.disk.process import end_with_each_thread

end_with_each_thread()
threading.Thread(target=lambda: [][0]).start()
threading.Event().wait()
"""


def test_an_error_in_a_thread_ends_the_process_and_is_in_its_output() -> None:
    ended = python_process.run("-c", SCRIPT)
    assert ended.returncode == 70
    assert "IndexError" in ended.stderr
