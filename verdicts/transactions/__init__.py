"""The rules: chains of records → state → flags, reason and advice → one row for each transaction.

`judge.judge` is the entry point. Three results, each of which contains the one before, decide the states, and nothing
else does: `judged_copies` (each half copy and op mark), `found_states` (as if nothing were missing; the order of
judgement), `judgement` (after doubt).
"""
