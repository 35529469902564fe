"""Detection metrics that ship with the package, one YAML file per family of exporters."""
