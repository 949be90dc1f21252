"""Why objects are treated as they are, and what would happen to them now; nothing is written."""
