"""Students that are no Transformers: Bi-LSTM and gated CNN, each with a task's head."""
