"""The command `drawbridge`, also `kubectl drawbridge`: what an operator asks, read with the operator's permissions.

`app.py` finds the command; a module of `commands` has its options, reads and writes. It reads by `inventory.py`, which
asks `cluster.py`, and hands values to functions that decide and show: `status.py`, `doctor.py`, `reservations.py`,
`addresses.py`, `placements.py`, `rollouts.py`, and the packages `explain` and `simulate`, which ask the webhooks and
planners of the product itself. `output.py` draws what they return, or prints it as JSON or YAML.
"""
