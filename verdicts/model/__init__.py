"""What a verdict rests on and what it says beside its rows, as values.

`verdict_inputs.StoreView` is all that the rules know of a store; `witnesses.Witnesses` are the records.
"""
