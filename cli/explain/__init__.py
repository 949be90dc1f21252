"""Why objects are treated as they are, and what would happen to them now; nothing is written.

`matching.py` says which webhooks the API server calls for a request, `prediction.py` what they answer, decided by the
webhooks of the product on a snapshot. `kinds.py` reads that for the kinds of objects that the features explain.
"""
