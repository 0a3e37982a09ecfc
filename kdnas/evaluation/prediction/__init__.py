"""Fine-tuned models at work on what has no labels."""
