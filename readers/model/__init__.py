"""What all packages share: declared layouts, table schemas, columns, errors, findings, ranges.

Other folders use `tables` (the schemas), `layout` (structures as data), `findings` (every kind of finding) and
`errors`; nothing here opens a file.
"""
