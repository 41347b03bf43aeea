"""The rules: chains of records → state → flags, reason and advice → one row for each transaction.

`judge.judge` is the entry point. Its steps are `judged_copies`, `found_states`, `judgement`; only they decide states.
"""
