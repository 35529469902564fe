"""One file for each benchmark of the table: `python -m bench.rows.NAME` runs it alone."""
