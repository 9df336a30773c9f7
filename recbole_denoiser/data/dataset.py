"""RecBole's sequential data set with exact order, lazily cut rows and one training row per user.

Reading, filtering and id mapping are RecBole's. What changes: the time order is exact (RecBole's float32
seconds collapse into 64-second steps), ties keep file order, and sequences are index ranges (``rows.py``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.data.dataset import Dataset, SequentialDataset
from recbole.utils import FeatureSource, FeatureType

from recbole_denoiser.data.atomic import check_header, check_row_widths, explain_bad_value
from recbole_denoiser.data.cleaning import Cleaning, cleaned
from recbole_denoiser.data.needs import check_columns, check_files
from recbole_denoiser.data.negatives import NegativeSampler, SeenItems, item_popularity
from recbole_denoiser.data.noise import Noise, inject, noise_arrays
from recbole_denoiser.data.parser import c_parser
from recbole_denoiser.data.prepare.sources import how_to_get
from recbole_denoiser.data.rows import Fields, FlatSequences, SequenceRows, sequence_rows
from recbole_denoiser.data.split import TEST, TRAIN, VALID, split_rows
from recbole_denoiser.data.view import View
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config


class SequenceDataset(SequentialDataset):
    """Atomic files -> rows. ``build()`` returns the training, validation and test parts."""

    source: FlatSequences  # the interactions as the atomic file has them
    view: View  # what this part reads: the source with noise, or without what noise_action removed
    inter_feat: Any  # RecBole's DataFrame while reading, then SequenceRows
    noisy: View  # with noise and before anything is done about it
    noise: Noise | None = None  # what train_noise or eval_noise did
    cleaning: Cleaning | None = None  # what noise_action did
    read_cleaning: Cleaning | None = None  # the same of what is read at validation and test, with eval_noise
    kept_detection: Path | None = None  # folder of a finished run: what the detector said when it was trained

    @property
    def flat(self) -> FlatSequences:
        """The interactions that this part reads."""
        if self.config["benchmark_filename"] is not None:
            raise UserError("Benchmark files hold no complete histories: give the sequences themselves (--input).")
        return self.view.flat

    # ---- reading ----

    def _load_data(self, token: str, dataset_path: str) -> None:
        suffixes = [f".{name}" for name in self.benchmark_filename_list or []] or [""]
        missing = [f"{token}{s}.inter" for s in suffixes if not (Path(dataset_path) / f"{token}{s}.inter").is_file()]
        if missing:
            raise UserError(
                f"Data set '{token}' not found: looked in {dataset_path} for {', '.join(missing)} "
                f"(and, if present, {token}.item and {token}.user). Set data_path to the folder that holds '{token}/'. "
                f"{how_to_get(token)}"
            )
        check_files(self.config, token, dataset_path)
        super()._load_data(token, dataset_path)

    def _load_feat(self, filepath: str, source: Any) -> pd.DataFrame | None:
        separator, encoding = self.config["field_separator"], self.config["encoding"] or "utf-8"
        columns = check_header(filepath, separator, encoding)
        check_row_widths(filepath, separator, encoding, len(columns))
        try:
            with c_parser(len(separator) == 1, (self.uid_field, self.iid_field)):
                feat = super()._load_feat(filepath, source)
        except (ValueError, OverflowError, pd.errors.ParserError) as error:
            raise explain_bad_value(filepath, separator, encoding, error) from error
        if feat is None and source == FeatureSource.INTERACTION:
            raise UserError(
                f"No column of {filepath} is loaded: it has {', '.join(columns)}. Check load_col and unload_col."
            )
        if feat is not None and feat.empty:
            raise UserError(f"{filepath} has a header but no rows.")
        return feat

    def _data_filtering(self) -> None:
        self._check_ids()
        self._check_time()
        check_columns(self.config, self)
        super()._data_filtering()
        if self.inter_feat.empty:
            raise UserError(f"Data set '{self.dataset_name}': no interaction is left after filtering.")

    def _check_ids(self) -> None:
        for key, field in (("USER_ID_FIELD", self.uid_field), ("ITEM_ID_FIELD", self.iid_field)):
            if field not in self.inter_feat:
                raise UserError(
                    f"Data set '{self.dataset_name}' has no column '{field}' ({key}) in its .inter file; "
                    f"loaded columns: {', '.join(self.inter_feat.columns)}. Check load_col and {key}."
                )
            if self.field2type[field] != FeatureType.TOKEN:
                raise UserError(
                    f"Column '{field}' of data set '{self.dataset_name}' must be of type token, "
                    f"not {self.field2type[field].value}: write '{field}:token' in the header of the .inter file."
                )

    def _check_time(self) -> None:
        if self.time_field not in self.inter_feat:
            raise UserError(
                f"Data set '{self.dataset_name}' has no column '{self.time_field}' (TIME_FIELD), which sequential "
                f"models need for the order; loaded columns: {', '.join(self.inter_feat.columns)}. "
                f"Check load_col and TIME_FIELD."
            )
        if self.field2type[self.time_field] != FeatureType.FLOAT:
            raise UserError(
                f"Column '{self.time_field}' of data set '{self.dataset_name}' must be of type float, "
                f"not {self.field2type[self.time_field].value}: write '{self.time_field}:float' in the header."
            )
        bad = ~np.isfinite(self.inter_feat[self.time_field].to_numpy(np.float64))
        if bad.any():
            raise UserError(
                f"Column '{self.time_field}' of data set '{self.dataset_name}' has {int(bad.sum())} missing or "
                f"infinite value(s), the first in line {int(np.flatnonzero(bad)[0]) + 2} of the .inter file."
            )

    def get_preload_weight(self, field: str) -> np.ndarray:
        """Vectors from files, in the precision of the models that read them."""
        return super().get_preload_weight(field).astype(np.float32)

    # ---- rows ----

    @property
    def row_fields(self) -> Fields:
        """Names of the columns of a batch."""
        config = self.config
        return Fields(
            self.uid_field, self.iid_field, self.item_list_length_field, config["LIST_SUFFIX"], config["NEG_PREFIX"]
        )

    def _change_feat_format(self) -> None:
        """Sort by user and exact time, turn the columns into tensors, and describe every prefix as a row."""
        if self.config["benchmark_filename"] is not None:
            super()._change_feat_format()
            return
        self.inter_feat = self.inter_feat.sort_values(
            [self.uid_field, self.time_field], kind="stable", ignore_index=True
        )
        exact_time = torch.from_numpy(self.inter_feat[self.time_field].to_numpy(np.float64))
        Dataset._change_feat_format(self)
        self._aug_presets()
        columns = dict(self.inter_feat.interaction)
        if columns[self.time_field].dim() == 1:  # a time that is also a numerical feature has a second column
            columns[self.time_field] = exact_time
        self.source = FlatSequences(columns, self.row_fields)
        self.inter_feat = SequenceRows.prefixes(self.source, self.source.targets, self.max_item_list_len)

    def build(self) -> list[SequenceDataset]:
        """Training, validation and test parts as ``eval_args`` says."""
        if self.config["benchmark_filename"] is not None:
            self._refuse_benchmark()
            return super().build()
        self._change_feat_format()
        rows = self.inter_feat
        if len(rows) == 0:
            raise UserError(
                f"Data set '{self.dataset_name}': no user has two interactions, so nothing can be predicted."
            )
        phase = split_rows(rows[self.uid_field].numpy(), rows[self.time_field].numpy(), self.config["eval_args"])
        self._drop_unused_col()
        self.view = View.of_files(self.source, rows.target.numpy(), phase)
        read = self._add_noise()
        self.view, self.cleaning = cleaned(self, self.view, self._kept("detection"))
        if read is None:
            read = self.view
        else:
            read, self.read_cleaning = cleaned(self, read, self._kept("detection-read"))
        self.inter_feat = SequenceRows.prefixes(self.flat, self.flat.targets, self.max_item_list_len)
        parts = [self._part(self.view, TRAIN), self._part(read, VALID), self._part(read, TEST)]
        if len(parts[TRAIN]) == 0:
            split = self.config["eval_args"]["split"]
            raise UserError(f"Data set '{self.dataset_name}': the split {split} leaves nothing to train on.")
        parts[TRAIN].inter_feat.negatives = self._training_negatives(parts[TRAIN])
        if self.config["train_rows"] == "sequences":
            parts[TRAIN].inter_feat = self._training_sequences(parts[TRAIN].inter_feat)
            parts[TRAIN].inter_feat.to_longest = self.config["train_batches"] == "bucketed"
        return parts

    def _part(self, view: View, phase: int) -> SequenceDataset:
        part = self.copy(view.rows(phase, self.max_item_list_len))
        part.view = view
        return part

    def _refuse_benchmark(self) -> None:
        """Benchmark files are split already and hold no complete histories."""
        for name, off in (("train_noise", 0.0), ("eval_noise", 0.0), ("noise_action", "none"), ("mask_prior", False)):
            asked = not isinstance(self.config, Config) or name in self.config.sources  # a default gives way
            if self.config[name] not in (None, off) and asked:
                raise UserError(f"{name} needs a data set that is split here, not benchmark files.")

    def _add_noise(self) -> View | None:
        """Noise in what is trained on, or only in what is read at validation and test, which is then returned."""
        for name in ("train_noise", "eval_noise"):
            share = self.config[name]
            if share:
                kind = self.config["train_noise_kind"] or "replace"
                self.noisy, self.noise = inject(self.view, kind, share, self._noise_seed(), self.item_num)
                if name == "eval_noise":
                    return self.noisy
                self.view = self.noisy
        return None

    def _kept(self, name: str) -> Path | None:
        return None if self.kept_detection is None else self.kept_detection / f"{name}.npz"

    def _noise_seed(self) -> int:
        seed = self.config["noise_seed"]
        return self.config["seed"] if seed is None else seed

    def noise_arrays(self) -> dict[str, np.ndarray]:
        """The injected interactions as tokens, for noise.npz."""
        assert self.noise is not None
        users, items = self.field2id_token[self.uid_field], self.field2id_token[self.iid_field]
        share = self.config["train_noise"] or self.config["eval_noise"]
        return noise_arrays(self.noisy, self.noise, users, items, share, self._noise_seed())

    def clean_items(self) -> np.ndarray:
        """[N] items of all interactions as the atomic file has them."""
        return self.source.columns[self.iid_field].numpy()

    def _training_sequences(self, train: SequenceRows) -> SequenceRows:
        windows = self.config["long_history"] == "windows"
        return sequence_rows(self.flat, train.target.numpy(), self.max_item_list_len, windows, train.negatives)

    def _training_negatives(self, train: SequenceDataset) -> NegativeSampler | None:
        """The sampler of negatives per position, for this package's models and the objectives that need one."""
        k, loss, sampling = (self.config[name] for name in ("train_negatives", "loss_type", "negative_sampling"))
        if not k or loss == "CE":
            return None
        if loss in ("SSM", "gBCE") and k > self.item_num - 2:
            raise UserError(
                f"train_negatives = {k} with loss_type: {loss}: data set '{self.dataset_name}' has {self.item_num - 1} "
                f"item(s), so at most {self.item_num - 2} can be negatives."
            )
        if self.config["negatives_shared"] or sampling == "in_batch":
            return None
        rows = train.inter_feat
        popularity = None
        if sampling == "popularity":
            popularity = item_popularity(train.counter(self.iid_field), self.item_num)
        return NegativeSampler(self.training_histories(rows), k, popularity)

    def training_histories(self, train: SequenceRows) -> SeenItems:
        """What each user has interacted with in training: the targets and the first interaction of every user."""
        first = np.unique(self.flat.user_start)
        index = np.concatenate([train.covered_targets(), first])
        user, item = self.flat.columns[self.uid_field].numpy(), self.flat.columns[self.iid_field].numpy()
        return SeenItems(user[index], item[index], self.item_num)

    def all_histories(self) -> SeenItems:
        """What each user has interacted with in any phase, before noise: no evaluation negative is among it."""
        return SeenItems(self.source.columns[self.uid_field].numpy(), self.clean_items(), self.item_num)

    def seen_before(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs (place in ``rows``, item): what the user of each row had before its target, as the files have it."""
        return self.view.seen_before(self.inter_feat.target.numpy()[rows], self.source)

    def counter(self, field: str) -> Counter:
        """How often each token occurs; for training sequences over every position, not only the last."""
        rows = self.inter_feat
        if isinstance(rows, SequenceRows) and rows.whole:
            return Counter(self.flat.columns[field].numpy()[rows.covered_targets()])
        return super().counter(field)

    def interaction_count(self) -> int:
        """Interactions of the whole data set; of benchmark files, their rows."""
        return len(self.inter_feat) if self.config["benchmark_filename"] is not None else len(self.source)

    def fingerprint(self) -> str:
        """SHA-256 over users, items (as tokens' ids) and exact times in order, before any ``train_noise``."""
        digest = hashlib.sha256()
        if self.config["benchmark_filename"] is not None:
            for field in (self.uid_field, self.iid_field):
                digest.update(self.inter_feat[field].numpy().tobytes())
            return digest.hexdigest()
        for values in (self.source.columns[self.uid_field].numpy(), self.clean_items(),
                       self.source.columns[self.time_field].numpy()):  # fmt: skip
            digest.update(values.tobytes())
        return digest.hexdigest()
