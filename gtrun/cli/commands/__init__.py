"""One module a command: its arguments, one call into the package, its output."""
