"""What anycast IPs add to the command: the addresses of nodes, why a node is closed, and what more nodes would need."""
