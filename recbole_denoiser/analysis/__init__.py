"""What a finished run knows: recommendations, explanations, pruning, variance."""
