"""The checker: it judges histories, traces and the logs of replicas."""
