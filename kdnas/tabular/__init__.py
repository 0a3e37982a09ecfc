"""A benchmark of searches that needs no training: tables of states with their losses."""
