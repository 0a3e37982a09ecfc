"""What all kinds of jobs share; which kinds there are, the registry alone knows."""
