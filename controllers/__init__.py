"""What finishes the work behind the gates: one leader, a reconciler for each feature."""
