"""RecBole sequential models of this package."""
