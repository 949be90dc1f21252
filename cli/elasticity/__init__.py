"""`drawbridge elasticity`: where pods are placed and why, and the way back to local nodes."""
