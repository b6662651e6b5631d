"""The checker: it judges runs by their histories, traces and dumped logs."""
