"""A simulated wire: brokers, producers and several rmqtx in one process, on a virtual clock (`make wire`).

The product runs unchanged above `open_stream`; what it sends reaches brokers made of dictionaries, and what it waits
for takes no time. Everything is drawn from a seed.
"""
