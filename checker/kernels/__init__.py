"""The kernels: pure functions over all facts of one (run, partition), one family a file."""
