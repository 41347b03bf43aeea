"""The rules of the broker's check by release, its loop over one half queue, and where that loop stops.

`check_rules` has the facts of the releases, `half_queue_check` the loop.
"""
