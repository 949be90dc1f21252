"""Certificates of the webhook server: issue, plan rotations, and serve the files without a restart.

The Secret and the caBundles are values here; the controllers read and write them, the servers mount the files.
Invariant: at every step of a rotation each served leaf is signed by an authority in all bundles.
"""
