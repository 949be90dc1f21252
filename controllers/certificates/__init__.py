"""Issue and renew the webhook server's certificate, and see to it that API servers trust it."""
