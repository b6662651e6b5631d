"""Facts as sorted columns, grouped by run and partition: what checks are functions of. Imports only
`formats`."""
