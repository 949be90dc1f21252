"""What elasticity adds to the command: where pods are placed, and where new ones would be."""
