"""Where results go: the spool folder, a textfile, a table."""
