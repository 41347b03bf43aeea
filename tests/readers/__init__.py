"""Tests of the package `readers`."""
