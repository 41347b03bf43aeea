"""Where rows come from: stores in files, live brokers, exports and plans; locally or on Spark.

`source` is the port that commands use: it chooses between `files` and `brokers`, and refuses what only the other knows.
`engines` reads whole stores, on this machine or on Spark.
"""
