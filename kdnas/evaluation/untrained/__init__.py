"""Models that are scored as they are: by their own head, or by their sentence embeddings."""
