"""Cursors set by hand."""
