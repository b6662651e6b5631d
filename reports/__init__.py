"""What a person reads: pages built from the files of a run folder."""
