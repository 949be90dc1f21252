"""The first replicas stay at home; the others, and those that home has no room for, go to super nodes."""
