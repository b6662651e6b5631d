"""Runs the command: `python -m harness.cli`."""

from harness.cli.main import main

main()
