"""The search: reward, history, and the loop that goes from episode to episode. Free of torch."""
