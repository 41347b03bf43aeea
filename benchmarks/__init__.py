"""Compare rmqtx with other programs on large stores that RocketMQ's own classes wrote."""
