"""What searches have explored: candidates, states, and the look-up table of losses."""
