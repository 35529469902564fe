"""The command line, and the life of the program."""
