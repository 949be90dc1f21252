"""Why objects are treated as they are, and what would happen to them now; nothing is written.

`matching.py` says which webhooks the API server calls for a request, `prediction.py` what they answer, decided by the
webhooks of the product on a snapshot. `answers.py` shows that; `pod.py`, `ip.py`, `node.py` and `ingress_daemonset.py`
ask about an object what people ask, and add what has happened to it.
"""
