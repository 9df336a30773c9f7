"""Figure 1 of the paper, learned: makes docs/explain.png.

A father buys (phone, headphone, laptop) for his son and (bag, pant) for his daughter, in turns. For laptop the paper
wants bag and pant pruned, and for pant phone and headphone.

The shop: in each of two departments a customer has a taste, five neighbours on a ring of ten products, and buys them
in random order, none twice. Before buying he visits the department; which one is next does not depend on what he
bought. So what he bought in the department he is in tells what comes next, and what he bought in the other one does
not: attention across departments is useless, and a content mask can find that out.

    python docs/make_figure1.py          # about 20 seconds; needs chromium for the picture
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

PRODUCTS = {
    "electronics": [
        "phone",
        "headphone",
        "laptop",
        "charger",
        "tablet",
        "camera",
        "lens",
        "tripod",
        "drone",
        "speaker",
    ],
    "fashion": ["bag", "pant", "shirt", "belt", "shoes", "socks", "cap", "coat", "scarf", "gloves"],
}
VISIT = {"electronics": "visit-electronics", "fashion": "visit-fashion"}
AIM = {product: aim for aim, products in PRODUCTS.items() for product in products}
FIGURE_1 = ["phone", "bag", "headphone", "pant", "laptop"]
TASTE = 5  # products that a customer likes in a department
STAY = 0.6  # probability of another purchase in the same department

SETTINGS: dict[str, Any] = {
    "mask": "content", "target_sparsity": 0.5, "estimator": "disarm", "n_layers": 1, "n_heads": 2, "hidden_size": 32,
    "inner_size": 32, "hidden_dropout_prob": 0.1, "attn_dropout_prob": 0.0, "loss_type": "CE", "target_denoise": "none",
    "learning_rate": 0.003, "epochs": 20, "eval_step": 0, "train_batch_size": 64, "MAX_ITEM_LIST_LENGTH": 10,
    "eval_args.mode": "full", "seed": 4, "show_progress": False, "state": "ERROR", "run_name": "figure-1",
    "noise_action": "none", "train_batches": "shuffled",
}  # fmt: skip


def customers(count: int, seed: int) -> list[list[str]]:
    """What each customer did, oldest first."""
    random = np.random.default_rng(seed)
    aims = list(PRODUCTS)
    found = []
    for _ in range(count):
        first = {aim: int(random.integers(len(PRODUCTS[aim]))) for aim in aims}
        wanted = {
            aim: [PRODUCTS[aim][(first[aim] + step) % len(PRODUCTS[aim])] for step in range(TASTE)] for aim in aims
        }
        aim = aims[int(random.integers(2))]
        actions = [VISIT[aim]]
        length = int(random.integers(8, 13))
        while len(actions) < length and wanted[aim]:
            actions.append(wanted[aim].pop(int(random.integers(len(wanted[aim])))))
            if random.random() > STAY:
                aim = aims[1 - aims.index(aim)]
                actions.append(VISIT[aim])
        found.append(actions)
    return found


def write_shop(folder: Path, count: int = 600, seed: int = 0) -> None:
    """The data set ``shop`` in ``folder``."""
    rows = ["user_id:token\titem_id:token\ttimestamp:float"]
    for number, actions in enumerate(customers(count, seed)):
        rows += [f"customer-{number}\t{item}\t{1_650_000_000 + 86_400 * day}" for day, item in enumerate(actions)]
    titles = ["item_id:token\ttitle:token"]
    titles += [f"{item}\t{item.replace('-', ' ').capitalize()}" for item in [*AIM, *VISIT.values()]]
    (folder / "shop").mkdir(parents=True, exist_ok=True)
    (folder / "shop" / "shop.inter").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "shop" / "shop.item").write_text("\n".join(titles) + "\n", encoding="utf-8")


def train(folder: Path, **changes: Any) -> Path:
    """Train on the shop; returns the folder of the run."""
    from recbole_denoiser.runs import pipeline

    write_shop(folder / "data")
    places = {"data_path": folder / "data", "result_dir": folder / "results"}
    flags = {**SETTINGS, **{name: str(place) for name, place in places.items()}, **changes}
    return folder / "results" / pipeline.run("SASRecDenoiser", "shop", flags=flags)["run"]


def explanation(run: Path) -> Any:
    """Figure 1's sequence, and a customer of the shop."""
    from recbole_denoiser.analysis.explain import explain
    from recbole_denoiser.analysis.histories import histories_of, user_history
    from recbole_denoiser.analysis.recommend import Recommender
    from recbole_denoiser.data.sequences import from_lists

    recommender = Recommender.load(run)
    days = [[1_650_000_000.0 + 86_400 * day for day in range(len(FIGURE_1))]]
    figure = from_lists([FIGURE_1], recommender.item_ids, ["Figure 1"], days)
    return explain(recommender, [*histories_of(recommender, figure), user_history(recommender, "customer-7")], k=5)


def main() -> None:
    """Train, write the page to a temporary folder and its picture beside this file."""
    from recbole_denoiser.report.explain_page import write_explain_page

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "report"))
    from browser import open_browser

    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "explain.html"
        write_explain_page(explanation(train(Path(name))), page)
        with open_browser(width=1180, height=760) as browser:
            browser.get(page.as_uri())
            browser.save_screenshot(str(Path(__file__).with_name("explain.png")))


if __name__ == "__main__":
    main()
