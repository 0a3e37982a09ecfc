"""Finding and removing what nothing needs any more: ``kdnas gc``."""
