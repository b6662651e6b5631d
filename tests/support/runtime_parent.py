"""A script that starts one broker process, as a console script would; run by a test, and killed.

Arguments: the configuration as JSON, and the modules of a template, if there shall be one. Prints
the pid of the child, then waits to be killed. Imports something heavy of its own, that no child may
import."""

from __future__ import annotations

import sys
import unittest.mock  # stands for a command line's own weight

import msgspec

from node.runtime import template
from node.runtime.process import ProcessConfig, spawn
from tests.support.runtime_fakes import FakeCore

if __name__ != "__main__":
    raise ImportError("the parent's main script was imported by its child")

assert unittest.mock
if sys.argv[2:]:
    template.prepare(sys.argv[2:])
process = spawn(msgspec.json.decode(sys.argv[1], type=ProcessConfig), FakeCore)
sys.stdout.write(f"{process.pid}\n")
sys.stdout.flush()
sys.stdin.read()
