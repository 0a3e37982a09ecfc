"""Search strategies: the feedback controller, random draws, and how a user adds another."""
