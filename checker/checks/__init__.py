"""The checks: pure functions over all facts of one (run, partition), of one run, or over what the
other checks found. Imports `formats` and `evidence`, and knows nothing of files."""
