"""What the programs tell about themselves: logs, health and metrics."""
