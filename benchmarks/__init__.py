"""Measures rmqtx against its peers on large stores that RocketMQ's own classes wrote."""
