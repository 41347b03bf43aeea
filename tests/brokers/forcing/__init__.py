"""Forced decisions on real brokers, judged by what the official client and consumer then see."""
