"""Calico's pools, and how much of them is assigned, reserved and free; nothing is written."""
