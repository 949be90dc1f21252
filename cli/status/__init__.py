"""`drawbridge status`: all features at a glance, and what is wrong first."""
