"""From public raw files to RecBole's atomic files (section 5.1.1: preprocessing "as in" SASRec and TiSASRec).

Every rating counts as an action (implicit feedback), a user's actions are ordered by time with ties in file order,
and rare users and items are dropped by one of three rules:

sasrec            users and items with at least 5 actions, both counted on the raw data, one pass (SASRec's script);
users-then-items  users with at least 5 actions in the raw data, then items with at least 5 actions by those users.
                  The same as sasrec followed by a second pass over the items only, and what gives the 30,935 users
                  and 12,111 items of the paper's Games; a user may be left with fewer than 5 actions;
5-core            both, repeated until nothing changes.

Table 1's MovieLens is exactly rule sasrec and its Games exactly users-then-items. Beauty follows Games. No rule is
known that gives its Movies&TV and Steam; 5-core is the strictest, so the nearest to these small rows.
"""

from __future__ import annotations

from pathlib import Path

from recbole_denoiser.data.prepare import raw as readers
from recbole_denoiser.data.prepare import titles as title_files
from recbole_denoiser.data.prepare.actions import RULES, factorise, target_folder, write_dataset
from recbole_denoiser.data.prepare.statistics import PrepareReport
from recbole_denoiser.errors import UserError

DEFAULT_RULE = {
    "ml-1m": "sasrec",
    "amazon-beauty": "users-then-items",
    "amazon-games": "users-then-items",
    "amazon-movies-tv": "5-core",
    "steam": "5-core",
}
NAMES = tuple(DEFAULT_RULE)


def prepare(
    name: str,
    raw: str | Path,
    output: str | Path,
    on_malformed: str = "skip",
    rule: str | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> PrepareReport:
    """Convert the raw file(s) of one data set into ``<output>/<name>/<name>.inter`` (and ``.item`` with titles)."""
    if name not in NAMES:
        raise UserError(f"There is no data set {name!r} to prepare. Allowed: {', '.join(NAMES)}.")
    rule = rule or DEFAULT_RULE[name]
    if rule not in RULES:
        raise UserError(f"There is no filter rule {rule!r}. Allowed: {', '.join(RULES)}.")
    raw, target = _raw_file(name, Path(raw)), target_folder(output, name, overwrite)
    malformed = readers.Malformed.of_setting(on_malformed)
    member = "ratings.dat" if readers.is_in_zip(raw) else None
    actions = factorise(readers.read_actions(raw, _parser(name, raw), malformed, member, progress))
    columns = title_files.MOVIELENS_COLUMNS if name == "ml-1m" else title_files.TITLE_COLUMNS
    return write_dataset(
        target, actions, rule, malformed, str(raw), columns, lambda items: _titles(name, raw, items, progress)
    )


def _raw_file(name: str, raw: Path) -> Path:
    if name == "ml-1m" and raw.is_dir():
        raw = raw / "ratings.dat"
    if raw.is_dir():
        raise UserError(f"{raw} is a folder. Name the raw file of {name} itself.")
    if not raw.is_file():
        raise UserError(f"There is no raw file {raw}.")
    if name != "ml-1m" and readers.is_in_zip(raw):
        raise UserError(f"{raw} is a zip file, which only ml-1m comes in. Allowed for {name}: plain or .gz files.")
    return raw


def _parser(name: str, raw: Path) -> readers.ParseLine:
    if name == "ml-1m":
        return readers.parse_movielens
    if name == "steam":
        return readers.parse_steam
    return readers.ParseAmazonCsv() if ".csv" in raw.name.lower() else readers.parse_amazon_json


def _titles(name: str, raw: Path, items: frozenset[str], progress: bool) -> dict[str, tuple[str, ...]]:
    if name == "ml-1m":
        return title_files.movielens_titles(raw, items, progress)
    if name == "steam":
        metadata = title_files.steam_metadata(raw)
        return title_files.record_titles(metadata, "id", ("title", "app_name"), items, progress)
    return title_files.record_titles(title_files.amazon_metadata(raw), "asin", ("title",), items, progress)
