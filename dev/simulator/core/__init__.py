"""Virtual threads, virtual time and chance by seed, in place of the standard library's."""
