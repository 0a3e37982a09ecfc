"""Speed, memory and size of models, side by side."""
