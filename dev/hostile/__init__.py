"""Attacks on a webhook server as the chart installs it, beside a client that must not suffer from them.

Everything stays on loopback, and each attack is bounded in clients and time. Nothing here is part of the product.
"""
