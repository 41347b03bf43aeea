"""RocketMQ's remoting protocol: frames, connections, requests; and a live broker as one more source of the tables."""
