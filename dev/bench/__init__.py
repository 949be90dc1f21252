"""Benchmarks: each suite gives figures against a baseline that it takes in the same run."""
