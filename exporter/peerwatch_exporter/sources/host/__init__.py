"""procfs, sysfs, PCI and the processes of the node."""
