"""Which rows of a table do not belong to their user? Needs neither torch nor RecBole.

python examples/find_noise_in_a_csv.py events.csv user item time
"""

import sys

import pandas as pd

from recbole_denoiser.detect import detect_noise


def main(file: str, user: str, item: str, time: str) -> None:
    events = pd.read_csv(file)
    report = detect_noise(events, user=user, item=item, time=time)
    print(report)
    events["noise"] = report.posterior
    print("\nleast likely to belong:")
    print(events.sort_values("noise", ascending=False).head(10).to_string(index=False))
    events[~report.remove].drop(columns="noise").to_csv("clean.csv", index=False)
    print(f"\n{int(report.remove.sum())} of {len(events)} rows left out in clean.csv")


if __name__ == "__main__":
    main(*sys.argv[1:])
