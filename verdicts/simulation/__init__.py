"""Simulation of a broker's check, round by round."""
