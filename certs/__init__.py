"""Certificates: issued for our own names, and served without a restart."""
