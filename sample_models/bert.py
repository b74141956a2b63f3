"""BERT (Devlin et al., NAACL 2019) of `transformers`.

    from sample_models.bert import bert_base
    module, inputs = bert_base()

Architecture and module code are the library's; weights are seeded (`sample_models.seeded`) and
nothing is downloaded. Sizes at width 1, depth None: 12 layers, 12 heads of 64, sequence 128.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sample_models import seeded

_HEAD_SIZE = 64


class TextEncoder(nn.Module):
    """`transformers`' BertModel as a function of three tensors.

    input_ids, attention_mask, token_type_ids i64[batch, sequence] ->
    hidden f32[batch, sequence, features], pooled f32[batch, features].
    """

    input_names = ("input_ids", "attention_mask", "token_type_ids")
    output_names = ("hidden", "pooled")

    def __init__(self, network: nn.Module, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.network = network
        self.sequence = sequence
        self.vocabulary = vocabulary

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.network(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return output.last_hidden_state, output.pooler_output

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return two-sentence inputs with padding at the end, the same for the same seed.

        Every row keeps at least half of its positions but not all, so that the mask has an effect.
        """
        shape = (batch, self.sequence)
        positions = torch.arange(self.sequence).expand(shape)
        half = (self.sequence + 1) // 2
        kept = seeded.integers("kept", seed, (batch, 1), half, max(half + 1, self.sequence))
        mask = (positions < kept).long()
        ids = seeded.integers("ids", seed, shape, 1, self.vocabulary) * mask  # 0 is [PAD]
        types = ((positions >= kept // 2) & (positions < kept)).long()
        return ids, mask, types


def bert_base(
    *,
    width: float = 1.0,
    depth: int | None = None,
    sequence: int = 128,
    batch: int = 1,
    seed: int = 0,
    attention: str = "sdpa",
) -> tuple[TextEncoder, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return BERT-base in evaluation mode and its example inputs.

    width: factor on the heads (12, at least 1; a head keeps its 64 features), with them on the
    hidden size, and on the vocabulary (30,522, at least 100). depth: layers; None: 12. sequence:
    tokens per row, at most 512. attention: "sdpa" keeps scaled dot product attention one op in the
    output of torch.export; "eager" decomposes it.
    """
    from transformers.initialization import no_init_weights
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertModel

    heads = max(1, round(12 * width))
    sizes: dict[str, Any] = {
        "vocab_size": max(100, round(30522 * width)),
        "hidden_size": heads * _HEAD_SIZE,
        "num_hidden_layers": 12 if depth is None else depth,
        "num_attention_heads": heads,
        "intermediate_size": 4 * heads * _HEAD_SIZE,
        "attn_implementation": attention,
    }
    config = BertConfig(**sizes)
    with no_init_weights():
        network = BertModel(config)
    module = TextEncoder(network, sequence, sizes["vocab_size"])
    seeded.fill(module, seed)
    module.eval()
    return module, module.make_inputs(batch, seed)
