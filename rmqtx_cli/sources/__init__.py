"""Where rows come from: stores in files, live brokers, exports and plans; locally or on Spark."""
