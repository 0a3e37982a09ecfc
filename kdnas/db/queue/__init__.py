"""Who takes up which job, for how long, and what may be done to it in each state."""
