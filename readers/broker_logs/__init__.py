"""The text logs of a broker process: which files, which lines, which times; no rules.

`line_kinds.py` declares the lines that name transactions, groups or rounds of the check. `log_lines.reading_of` opens
a directory, `LogReading.lines` streams the known lines once.
"""
