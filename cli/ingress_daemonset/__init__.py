"""What IngressDaemonSets add to the command: their rollouts, why these wait, and how they would go."""
