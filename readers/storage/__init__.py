"""Where bytes come from: local files, URIs of object stores, ranges of both. Knows nothing of RocketMQ.

Other folders open files by `segments.OpenFile` and list them by `places`.
"""
