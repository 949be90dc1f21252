"""A node opens for work when its anycast IP is bound, and its address goes when the node has gone."""
