"""`drawbridge doctor`: the checks of docs/how-to/troubleshooting.md, run."""
