"""The measurements, a file for each subject: each function returns a table, its targets, and remarks.

Every timed answer is compared with the truth of its store: a fast wrong answer fails the measurement.
"""
