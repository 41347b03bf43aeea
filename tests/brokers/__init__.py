"""Real RocketMQ brokers for the tests: started from Maven artifacts, driven by the official client, their stores kept
with the truth.
"""
