"""From text anywhere to memory-mapped tokens, and from tokens to batches; no torch in here."""
