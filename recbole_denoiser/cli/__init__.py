"""The command ``recbole-denoiser``: main.py reads the command line, one file per group of commands does the rest."""
