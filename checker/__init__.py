"""What must hold: judges histories, traces and the logs of replicas."""
