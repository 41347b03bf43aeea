"""Damaged stores, opened by real brokers: did the start do what `verify` predicted?"""
