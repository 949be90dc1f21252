"""The command `drawbridge`, also `kubectl drawbridge`: what an operator asks, read with the operator's permissions.

`app.py` lists the commands that the table of features names, and those about all of them; a module of `commands` has
the options, reads and writes of one. It reads by `inventory.py`, which asks `cluster.py`, and hands values to functions
that decide and show: `status.py`, `doctor.py`, `reservations.py`, `addresses.py`, `placements.py`, `rollouts.py`, and
the packages `explain` and `simulate`, which ask the webhooks and planners of the product itself; `features` has what
each feature adds to these two. `output.py` draws what they return, or prints it as JSON or YAML.
"""
