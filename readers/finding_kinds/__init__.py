"""The register of finding codes, a file for each part of a store. `rmqtx.readers.model.findings.KINDS` has them all.

Codes never change.
"""
