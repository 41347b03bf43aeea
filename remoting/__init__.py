"""RocketMQ's remoting protocol: frames, connections, requests; and live brokers as a source of the tables."""
