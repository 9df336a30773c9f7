"""Settings of the denoiser (section 4 of the paper), checked when they are made.

beta and gamma are defined on mean scales, so that they do not depend on the batch or on the sequence length:
R_M is the mean of Pi over the live attentions of a layer (summed over layers) and R_J is divided by the number of
real outputs. The paper prints sums (eq. 9 and 14); with a mean recommendation loss a sum would drown it.
"""

from __future__ import annotations

from dataclasses import dataclass

from recbole_denoiser.core.settings import check_settings, refuse, setting

TWO_PASS = ("arm", "disarm")  # unbiased, need the loss at a second, antithetic mask
ONE_PASS = ("ar", "reinforce")  # unbiased, need the loss at one mask
PATHWISE = ("straight_through", "hard_concrete")  # biased, the gradient goes through Z itself
FORMS = ("product", "renormalise")  # see forms.py
GATES = ("clipped", "hard", "expected")  # see masks.py
ESTIMATORS = ("ar", "arm", "disarm", "reinforce", "straight_through", "hard_concrete")


@dataclass(frozen=True)
class DenoiserConfig:
    """All settings of one denoiser. A wrong value raises UserError with the key, the value and what is allowed.

    >>> DenoiserConfig(max_length=50, beta=0.01).beta
    0.01
    """

    max_length: int = setting(
        int,
        "Side n of the mask: the longest sequence.",
        minimum=1,
        maximum=20_000,
        public=False,
    )
    causal: bool = setting(
        bool,
        "Attention looks at earlier positions only; `False` for bidirectional attention (BERT4Rec).",
        True,
        public=False,
    )
    align: str = setting(
        str,
        "Where a sequence shorter than n lies on the n x n mask: its last (`end`) or its first rows (`start`).",
        "end",
        choices=("end", "start"),
        public=False,
    )
    mask: str = setting(
        str,
        "`position`: one free n x n Phi per layer (the paper); `content`: Phi also depends on the items.",
        "position",
        choices=("position", "content"),
    )
    mask_per_head: bool = setting(bool, "One mask per attention head instead of one per layer (the paper).", False)
    mask_form: str = setting(
        str,
        "`product`: Z multiplies the attention weights (eq. 8, the paper); `renormalise`: what is kept shares the "
        "weight of what is pruned, and a row with nothing left attends to itself.",
        "product",
        choices=FORMS,
    )
    mask_prior: bool = setting(
        bool,
        "Add what the noise detector says: Phi_uv = phi_uv + s logit(1 - p_v), s trained from 1. While phi is 0, as at "
        "the start, the gate closes exactly where the item is more likely noise than not.",
        False,
    )
    mask_init: float | None = setting(
        float,
        "Initial Phi; positive is open, 0 or less prunes everything at inference. Empty: 3, and 0 with `mask_prior`.",
        None,
        minimum=-10_000,
        maximum=10_000,
        optional=True,
        words="None or a finite number from -10000 to 10000 (above 0 starts with open masks)",
    )
    inference_gate: str = setting(
        str,
        "Z at inference: `clipped`, g(Phi) and 0 where that is <= 0.5 (the paper); `hard`, 1 where it is above 0.5; "
        "`expected`, g(Phi) everywhere, the mean of the masks of training, which prunes nothing exactly.",
        "clipped",
        choices=GATES,
    )
    random_keep: float | None = setting(
        float,
        "A control: masks that are drawn once, keep this share of attentions and never learn; empty: trained masks.",
        None,
        minimum=0,
        maximum=1,
        optional=True,
        words="None, or a share in [0, 1] when mask is position",
    )
    content_rank: int = setting(int, "Rank of the bilinear part of a content mask.", 8, minimum=1, maximum=4096)
    estimator: str = setting(str, "Gradient estimator of the masks.", "disarm", choices=ESTIMATORS)
    mask_sampling: str = setting(
        str,
        "A mask drawn per `sequence`, which has far less variance, or one per `batch` (the paper).",
        "sequence",
        choices=("sequence", "batch"),
    )
    credit: str = setting(
        str,
        "Which losses a mask entry is blamed for: those its `row` can reach, or the `total` (needed if positions mix "
        "after the last attention).",
        "row",
        choices=("row", "total"),
    )
    conditional: bool = setting(bool, "Flip one layer at a time in the second pass; less variance, more time.", False)
    baseline: bool = setting(bool, "Subtract a running mean of the loss (`ar`, `reinforce`).", True)
    beta: float = setting(
        float, "Weight of R_M (eq. 9/11), the mean open probability per layer.", 0.0, minimum=0, maximum=1e9
    )
    gamma: float = setting(
        float, "Weight of R_J (eq. 14), the squared Jacobian norm per output.", 0.0, minimum=0, maximum=1e9
    )
    target_sparsity: float | None = setting(
        float,
        "Wanted share of pruned attentions; adapts beta. Where it is large, `inference_gate: hard` costs less.",
        None,
        minimum=0,
        below=1,
        optional=True,
        words="None or a share in [0, 1)",
    )
    jacobian_projections: int = setting(int, "Random projections per step for R_J.", 1, minimum=1, maximum=1000)
    jacobian_batch: int = setting(
        int, "Sequences per step for R_J; 0: all of the batch.", 8, minimum=0, maximum=1_000_000
    )
    jacobian_noise: str = setting(
        str, "Distribution of the projections.", "rademacher", choices=("rademacher", "gaussian")
    )
    jacobian_method: str = setting(
        str,
        "`vjp`, or `finite_difference` where second derivatives do not exist.",
        "vjp",
        choices=("vjp", "finite_difference"),
    )
    jacobian_step: float = setting(float, "Step of the finite difference.", 1e-3, above=0, maximum=1, public=False)
    sites: tuple[str, ...] | None = setting(
        tuple,
        "Names of the attention modules to mask; empty: find them.",
        None,
        optional=True,
        public=False,
        words="None or a list of module names",
    )
    n_heads: int | None = setting(
        int,
        "Heads per attention layer; only needed with mask_per_head if the attention module does not tell.",
        None,
        minimum=1,
        maximum=4096,
        optional=True,
        public=False,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.random_keep is not None:
            if self.mask != "position" or self.mask_prior:
                refuse(self, "random_keep", "None, or a share in [0, 1] when mask is position and mask_prior is False")
            # nothing is estimated, so the cheapest estimator will do
            object.__setattr__(self, "estimator", "straight_through")
        if self.sites is not None:
            object.__setattr__(self, "sites", tuple(self.sites))
        # One U shared by sequences whose Phi differ would tie their bits together, and a loss that is only known
        # for the whole batch would then give a biased gradient.
        if self.mask_sampling == "batch" and (self.mask == "content" or self.mask_prior):
            why = "mask is content" if self.mask == "content" else "mask_prior is True"
            refuse(self, "mask_sampling", f"sequence when {why} (each sequence has its own Phi)")

    @property
    def first_phi(self) -> float:
        """phi at the start of training: open masks, or with mask_prior as open as the prior says."""
        if self.mask_init is not None:
            return float(self.mask_init)
        return 0.0 if self.mask_prior else 3.0

    @property
    def one_layer_at_a_time(self) -> bool:
        """Content masks always flip one layer at a time: see core/denoiser.py."""
        return self.conditional or self.mask == "content"
