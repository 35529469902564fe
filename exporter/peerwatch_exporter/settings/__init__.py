"""Settings of the exporter: declared once, loaded with every mistake at once."""
