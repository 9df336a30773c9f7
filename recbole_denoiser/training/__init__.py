"""Training and measuring one model: trainer, evaluation, checkpoints."""
