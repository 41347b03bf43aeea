"""Ways to write rows: every format behind one port, results on stdout or, whole or not at all, in a file."""
