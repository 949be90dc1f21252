"""What would happen, by the functions of the webhook server and the controllers; nothing is written.

Each module takes what was read as a value, plays one change on it, and shows the outcome: the removal of pods, a scaled
workload, nodes that join, a rollout, and other values of the chart.
"""
