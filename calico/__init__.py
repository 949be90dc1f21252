"""The thin edge to Calico: which addresses are kept out of circulation, for whom and since when."""
