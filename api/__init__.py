"""What the outside knows of us, by feature: labels, annotations, taints, conditions and kinds, and rules on them.

Admission, controllers and the command share it; it does no I/O and imports none of them.
"""
