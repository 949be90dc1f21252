"""What would happen, by the functions of the webhook server and the controllers; nothing is written."""
