"""The command `drawbridge`, also `kubectl drawbridge`: what an operator asks, read with the operator's permissions.

`app.py` lists the commands that the table of features names, and those about all of them. A module of a feature's
folder has one: its options, what it reads by `inventory.py`, which asks `cluster.py`, and the functions of values that
decide what it shows. `health.py` is what a feature adds to `status.py` and `doctor.py`; `explain` and `simulate` ask
the webhooks and planners of the product itself. `output.py` draws a report, or prints it as JSON or YAML.
"""
