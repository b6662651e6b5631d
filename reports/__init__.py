"""What a person reads: pages built from the files of a run folder.

`build(run_dir)` writes `report.html`, `summary(run_dir)` returns a few lines for the terminal.
"""

from reports.look import ReportError
from reports.page import build
from reports.summary import summary

__all__ = ["ReportError", "build", "summary"]
