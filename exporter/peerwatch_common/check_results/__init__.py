"""Results of active checks: the record, its file in the spool folder, and its metrics."""
