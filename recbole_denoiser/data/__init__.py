"""From atomic files to training rows: exact order, one row per user, negatives, noise, conversion."""
