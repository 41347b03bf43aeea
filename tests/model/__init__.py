"""The half and op topics of a broker as a small executable model: the ends of bounded worlds are audited.

`rules`: what a broker does in one step. `worlds`: the bounds, and all states that can be reached. `ends`: what happened
in a world that ended, and what its broker does next. `forging`: its store. `judging`: the comparison with `audit`.
`playing`: the same steps on the brokers' own classes.

Nothing here uses the rules of `verdicts/`: the model is written from the sources of the brokers.
"""
