"""A model of your own beside RecBole's, trained and measured as all others are, masks included.

python examples/new_model.py ml-100k --epochs=20
"""

import sys

from torch import Tensor

from recbole_denoiser import run
from recbole_denoiser.cli.main import parse_settings
from recbole_denoiser.integration.registry import register_model
from recbole_denoiser.model.sasrec import SASRecDenoiser
from recbole_denoiser.runs.summary import run_table


class ScaledSASRec(SASRecDenoiser):
    """SASRec whose item vectors count sqrt(d) times as much as its positions, as in the first Transformers."""

    def embed_items(self, items: Tensor) -> Tensor:
        positions = self.position_embedding(self.position_ids(items.size(1)))
        scaled = self.item_embedding(items) * self.item_embedding.embedding_dim**0.5
        return self.dropout(self.LayerNorm(scaled + positions))


if __name__ == "__main__":
    register_model(ScaledSASRec, defaults_of="SASRecDenoiser")
    print(run_table(run("ScaledSASRec", sys.argv[1], flags=parse_settings(sys.argv[2:]))))
