"""The inputs of a verdict, and its results other than the rows, as values.

`verdict_inputs.StoreView` has all that the rules use of a store; `witnesses.Witnesses` are the records.
"""
