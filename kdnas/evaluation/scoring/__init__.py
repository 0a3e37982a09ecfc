"""From predictions to scores, and how sure these are."""
