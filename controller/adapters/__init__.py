"""Our strategies for other programs that run trials: Optuna, Ray Tune."""
