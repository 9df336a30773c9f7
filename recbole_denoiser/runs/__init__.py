"""One run from atomic file to result.json, and the way back: reading and opening finished runs."""
