"""What IP reservation adds to the command: reserved IPs, why they are, and what would be reserved."""
