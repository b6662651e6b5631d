"""report.html: the page of one run."""
