"""The data set of RecBole's DIEN, which reads a random other item beside every item of a history."""

from __future__ import annotations

import torch

from recbole_denoiser.data.dataset import SequenceDataset


class InterestDataset(SequenceDataset):
    """Rows with a negative for every past item, drawn once from all other items."""

    def _change_feat_format(self) -> None:
        super()._change_feat_format()
        item = self.source.columns[self.iid_field]  # [N] ids from 1
        step = torch.randint(1, self.item_num - 1, item.shape)  # never back to the item itself
        fields = self.row_fields
        self.source.columns[fields.negative_prefix + fields.item] = (item - 1 + step) % (self.item_num - 1) + 1
