"""The commands, a module each: their options, what they read, and what they write. Nothing is decided here."""
