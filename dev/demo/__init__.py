"""The demo: what Drawbridge promises, on a real control plane, shown by its own commands, and judged from outside."""
