"""Hold back a node that wants an address: taint it until its address is bound."""
