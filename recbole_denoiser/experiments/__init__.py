"""Grids of runs, statistics over finished runs, tables."""
