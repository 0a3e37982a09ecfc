"""What a task is, which tasks there are, and examples of them."""
