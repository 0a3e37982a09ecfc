"""What every request passes and every answer has: the web application without any kind of work."""
