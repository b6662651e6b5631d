"""The checks: pure functions over all facts of one partition of a run, over the facts of a whole
run, or over the findings of the other checks. Imports only `formats` and `evidence`; reads no
file."""
