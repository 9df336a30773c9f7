"""Where the raw files of the public data sets come from. None is downloaded: their owners want to be asked."""

from __future__ import annotations

_AMAZON = "https://jmcauley.ucsd.edu/data/amazon/"
# name -> the raw file and where it is offered
SOURCES = {
    "ml-1m": ("ml-1m.zip", "https://files.grouplens.org/datasets/movielens/ml-1m.zip"),
    "amazon-beauty": ("ratings_Beauty.csv", _AMAZON),
    "amazon-games": ("ratings_Video_Games.csv", _AMAZON),
    "amazon-movies-tv": ("ratings_Movies_and_TV.csv", _AMAZON),
    "steam": ("steam_reviews.json.gz", "https://cseweb.ucsd.edu/~jmcauley/datasets.html"),
}


def how_to_get(name: str) -> str:
    """A sentence for somebody whose data set is missing; of a data set of their own, how to convert it."""
    if name not in SOURCES:
        return "Your own events become a data set with: recbole-denoiser prepare csv --help"
    file, address = SOURCES[name]
    return f"Get {file} from {address} and convert it: recbole-denoiser prepare {name} --raw {file}"


def listed() -> str:
    """All of them, for ``prepare --help``."""
    width = max(map(len, SOURCES)) + 2
    lines = [f"  {name.ljust(width)}--raw {file}, from {address}" for name, (file, address) in SOURCES.items()]
    return "\n".join(["public data sets, their raw files and where to get them:", *lines])
