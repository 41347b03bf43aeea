"""The rules: chains of records → state → flags, reason and advice → one row for each transaction.

`judge.judge` is the door. Its steps: `judged_copies`, `found_states`, `judgement`; no other place decides a state.
"""
