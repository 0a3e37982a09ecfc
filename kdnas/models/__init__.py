"""Teachers and students as torch models, and where to read their inner states."""
