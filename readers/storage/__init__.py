"""Access to bytes: local files, URIs of object stores, ranges of both. Nothing here depends on RocketMQ.

Other folders open files by `segments.OpenFile` and list them by `places`.
"""
