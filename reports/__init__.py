"""The pages of runs and stores, built from the files of a run folder.

`build(run_dir)` writes `report.html`, `summary(run_dir)` returns a few lines for the terminal."""

from reports.run_page.head import summary
from reports.run_page.page import build
from reports.theme import ReportError

__all__ = ["ReportError", "build", "summary"]
