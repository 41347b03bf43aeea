"""RocketMQ's remoting protocol as bytes and words: frames, codes, record bytes, signing."""
