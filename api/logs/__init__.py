"""What processes print: the log of each job, and that of the service."""
