"""Salvage: a new store from the readable records of a damaged one."""
