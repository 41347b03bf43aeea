"""RocketMQ's remoting protocol without connections: frames, codes, record bytes, signatures."""
