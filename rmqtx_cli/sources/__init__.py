"""Sources of rows: stores in files, live brokers, exports and plans; locally or on Spark.

`source` is the interface that commands use: it chooses between `files` and `brokers`, and refuses options of the other.
`engines` reads whole stores, on this machine or on Spark; `engine_run` starts an engine for one command.
"""
