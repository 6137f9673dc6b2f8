"""Hugging Face transformers: an attention implementation, and a ``Trainer``.

Example:
    >>> model = AutoModelForCausalLM.from_pretrained(name)
    >>> use_skrull(model)
    >>> with session_of(model, engine, rank) as session:
    ...     for step in loader:
    ...         session.prepare(step.rank_plan)
    ...         for batch in step.micro_batches:
    ...             inputs, labels = model_inputs(batch)
    ...             logits = model(**inputs).logits

Needs transformers 4.51 or later, and models that use its ``AttentionInterface`` and
pass keyword arguments on to it, as those of the Llama and Qwen families do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, PreTrainedModel

from skrull.engine import Engine
from skrull.errors import InvalidArgumentError, UnsupportedError
from skrull.integrations._padding import padded_attention, padded_rows
from skrull.rank_plan import MicroBatch
from skrull.torch import Session

if TYPE_CHECKING:
    from skrull.torch import TrainMicroBatch

NAME = "skrull"  # of the attention implementation
KEYWORD = "skrull_micro_batch"  # of the model's forward

# Options of a configuration, and of a call, that change what attention computes.
# Sliding windows are per layer: the call tells.
_DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
_REFUSED_OF_CALL = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")


def use_skrull(model: PreTrainedModel) -> None:
    """Makes the model compute attention by plans; its weights stay as they are.

    Raises:
        UnsupportedError: The model has attention dropout, soft-capped scores, or
            sliding windows on some layer; names the option.
    """
    config = model.config.get_text_config()
    for name in _DROPOUTS:
        if getattr(config, name, 0):
            raise UnsupportedError(
                f"{name} is {getattr(config, name)}: dropout inside attention is not "
                "supported; set it to 0",
                field=name,
            )
    if getattr(config, "attn_logit_softcapping", None):
        raise UnsupportedError(
            f"attn_logit_softcapping is {config.attn_logit_softcapping}: soft-capped "
            "scores are not supported",
            field="attn_logit_softcapping",
        )
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise UnsupportedError(
            f"sliding_window is {getattr(config, 'sliding_window', None)} on some "
            "layers: sliding windows are not supported",
            field="layer_types",
        )
    # No mask function goes with it, so that no mask of tokens^2 is made.
    AttentionInterface.register(NAME, _attention)
    model.set_attn_implementation(NAME)
    config.use_cache = False


def session_of(
    model: PreTrainedModel, engine: Engine, rank: int, **options: Any
) -> Session:
    """A session for the model's attention. Collective.

    Args:
        model: Heads, scale, dtype and device are its own.
        engine: Of the job.
        rank: This rank.
        **options: More of ``Session``'s, such as ``comm``; they win.

    Raises:
        UnsupportedError: Its layers scale scores differently.
    """
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    found = (getattr(module, "scaling", None) for module in model.modules())
    scales = {scale for scale in found if isinstance(scale, float)}
    if len(scales) > 1:
        raise UnsupportedError(
            f"layers scale scores by {sorted(scales)}: one scale for all is supported",
            field="scaling",
        )
    given: dict[str, Any] = {
        "q_heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "scale": scales.pop() if scales else None,
        "dtype": model.dtype,
        "device": model.device,
    }
    return Session(engine, rank, **(given | options))


def model_inputs(batch: TrainMicroBatch) -> tuple[dict[str, Any], torch.Tensor]:
    """What ``model(**inputs)`` takes, and the labels [1, rows] of its logits.

    A rank without rows gets one row without a label. The labels are shifted
    already: leave them to ``skrull.torch.token_weighted_loss``, not to the model.
    """
    rows = padded_rows(batch)
    inputs = {
        "input_ids": rows.input_ids,
        "position_ids": rows.position_ids,
        "use_cache": False,
        KEYWORD: batch.micro_batch,
    }
    return inputs, rows.labels


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As ``AttentionInterface`` has it.

    query [1, q_heads, rows, head_dim]; key and value [1, kv_heads, rows, head_dim]
    -> [1, rows, q_heads, head_dim].
    """
    micro_batch = options.get(KEYWORD)
    if not isinstance(micro_batch, MicroBatch):
        raise InvalidArgumentError(
            f"the model was called without {KEYWORD}: call it with "
            "skrull.integrations.transformers.model_inputs(batch). If it was, this "
            f"model does not pass keyword arguments on to {type(module).__name__}",
            field=KEYWORD,
        )
    refused = [name for name in _REFUSED_OF_CALL if options.get(name) is not None]
    refused += ["dropout"] if dropout else []
    refused += ["attention_mask"] if attention_mask is not None else []
    if refused or not getattr(module, "is_causal", True):
        raise UnsupportedError(
            f"{type(module).__name__} asks for {', '.join(refused) or 'no causal mask'}"
            ", which is not supported",
            field=refused[0] if refused else "is_causal",
        )
    if query.shape[0] != 1 or key.shape[2] != query.shape[2]:
        raise InvalidArgumentError(
            f"query of {list(query.shape)} with key of {list(key.shape)}: must be one "
            "packed row, and no cache",
            field="query",
        )
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return padded_attention(q, k, v, micro_batch, scaling)[None], None
