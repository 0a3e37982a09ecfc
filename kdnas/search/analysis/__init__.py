"""How sure the figures of a search are, and what chance would have found: after the fact only."""
