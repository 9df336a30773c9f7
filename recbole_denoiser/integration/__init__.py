"""Everything that bends RecBole (configuration, registry, repairs, processes): the place to look when it changes."""
