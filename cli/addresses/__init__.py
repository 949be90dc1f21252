"""`drawbridge addresses`: the anycast IPs of nodes, and those that are being released."""
