"""Bind an anycast IP to each node that needs one, open the node when that is proven, and release the IP afterwards.

Each node is reconciled by its uid: read a snapshot, plan the next action, run it. An address claim is written before
an address is ordered and deleted after its address and tags are gone, so that a crash between any two lines neither
leaks an address nor orders a second one.
"""
