"""Options that commands share, and how a request is made of them."""
