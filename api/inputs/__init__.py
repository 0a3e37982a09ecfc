"""What a request may name, checked where it is opened."""
