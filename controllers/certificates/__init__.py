"""Issue and rotate the webhook server's certificate, and write its CA into the webhook configurations.

One key is reconciled: read the Secret and the configurations, plan one step, write it. A leaf is served only when all
configurations have trusted its CA for a while, so that no call fails during a rotation.
"""
