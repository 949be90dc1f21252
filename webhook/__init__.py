"""The admission webhooks: one package per feature, and the server that answers the API server for them.

A request passes the worker (one connection), ``app`` (HTTP), ``admission`` (the review) and the feature's webhook.
Invariant: every POST gets an answer before the caller's timeout, and a dry run writes nothing.
"""
