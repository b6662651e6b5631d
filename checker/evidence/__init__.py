"""Facts as sorted columns, grouped by run and partition."""
