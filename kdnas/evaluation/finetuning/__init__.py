"""From a model and a task's examples to a model that was fine-tuned on them."""
