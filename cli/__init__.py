"""The command `drawbridge`, also `kubectl drawbridge`: what an operator asks, read with the operator's permissions."""
