"""What a student learns from its teacher in the first stage, a method a file."""
