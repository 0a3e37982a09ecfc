"""Workers: plain classes that do the work, and thin shells that run them on Ray or right here."""
