"""The text form of ``skrull.v1.JobSpec``, written part by part."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from skrull.errors import InvalidArgumentError

_SCOPES = {
    "group": "BLOCK_SCOPE_GROUP",
    "subgroup": "BLOCK_SCOPE_SUBGROUP",
    "pool": "BLOCK_SCOPE_POOL",
}
# Fields of ModelSpec and the keys of a Hugging Face configuration, the usual name
# first; GPT-2's and Falcon's own names follow.
_MODEL_KEYS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "layer_count": ("num_hidden_layers", "n_layer", "num_layers"),
    "attention_head_count": ("num_attention_heads", "n_head"),
    "kv_head_count": ("num_key_value_heads", "num_kv_heads"),
    "head_dim": ("head_dim",),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim"),
    "vocab_size": ("vocab_size",),
}
_OPTIONAL = ("kv_head_count", "head_dim")  # the planner has defaults


def message_text(name: str, fields: Mapping[str, Any]) -> str:
    """One message, ``name { field: value ... }``, without the fields that are None.

    Values are numbers, booleans, names of enums (str, upper case), and mappings,
    which become messages.

    Raises:
        InvalidArgumentError: A value is none of these.
    """
    body = "".join(
        _field_text(name, field, value)
        for field, value in fields.items()
        if value is not None
    )
    return f"{name} {{ {body}}}\n" if body else ""


def _field_text(message: str, field: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"{field}: {str(value).lower()} "
    if isinstance(value, int | float):
        return f"{field}: {value!r} "
    if isinstance(value, str) and value.isidentifier() and value.isupper():
        return f"{field}: {value} "
    if isinstance(value, Mapping):
        return message_text(field, value).rstrip("\n") + " "
    raise InvalidArgumentError(
        f"{message}.{field}: {value!r} is no number, boolean or name of an enum",
        field=f"{message}.{field}",
    )


def parallelism_text(
    *,
    dp_size: int,
    cp_size: int,
    tp_size: int = 1,
    pp_size: int = 1,
    ranks_per_node: int = 0,
    block_scope: str = "group",
    uniform_micro_batch_count: bool = False,
    policy: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> str:
    """ParallelismSpec, the policy and the labels.

    Raises:
        InvalidArgumentError: ``block_scope`` is no scope, or a label no text.
    """
    if block_scope not in _SCOPES:
        raise InvalidArgumentError(
            f"block_scope: must be one of {', '.join(_SCOPES)}, is {block_scope!r}",
            field="block_scope",
        )
    text = message_text(
        "parallelism",
        {
            "dp_size": dp_size,
            "cp_size": cp_size,
            "tp_size": tp_size,
            "pp_size": pp_size,
            "ranks_per_node": ranks_per_node,
            "block_scope": _SCOPES[block_scope],
            "uniform_micro_batch_count": uniform_micro_batch_count,
        },
    )
    if policy is not None:
        text += _field_text("job", "policy", policy) + "\n"
    for key, value in (labels or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"labels: {key!r}: {value!r} is not a pair of texts", field="labels"
            )
        text += f"labels {{ key: {_quoted(key)} value: {_quoted(value)} }}\n"
    return text


def _quoted(text: str) -> str:
    # What JSON escapes, the text form escapes alike.
    return json.dumps(text, ensure_ascii=False)


def model_text(config: Any) -> str:
    """ModelSpec of a Hugging Face configuration, in any form.

    Raises:
        InvalidArgumentError: Names what is missing or no number.
        OSError: The file cannot be read.
    """
    keys = _dictionary(config)
    nested = keys.get("text_config")
    if nested is not None:
        keys = _dictionary(nested)
    fields: dict[str, Any] = {}
    for field, names in _MODEL_KEYS.items():
        value = next((keys[n] for n in names if keys.get(n) is not None), None)
        if value is None and field not in _OPTIONAL:
            raise InvalidArgumentError(
                f"the configuration has no {' nor '.join(names)}, which model."
                f"{field} needs; it has: {', '.join(sorted(keys)) or 'nothing'}",
                field=f"model.{field}",
            )
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int)
        ):
            raise InvalidArgumentError(
                f"model.{field}: the configuration has {value!r}, not a whole number",
                field=f"model.{field}",
            )
        fields[field] = value
    return message_text("model", fields)


def _dictionary(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    if isinstance(config, str | os.PathLike):
        path = pathlib.Path(config)
        if path.is_dir():
            path = path / "config.json"
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise InvalidArgumentError(f"{path}: no JSON: {error}") from error
        if not isinstance(loaded, dict):
            raise InvalidArgumentError(f"{path}: not a JSON object")
        return loaded
    to_dict = getattr(config, "to_dict", None)
    if callable(to_dict):
        converted = dict(to_dict())
        # Names that a model renames (n_embd) answer as attributes alone.
        for names in _MODEL_KEYS.values():
            for name in names:
                value = getattr(config, name, None)
                if value is not None:
                    converted.setdefault(name, value)
        return converted
    raise InvalidArgumentError(
        f"{type(config).__name__} is no configuration: give one of transformers, a "
        "dictionary, or the path of a config.json",
        field="config",
    )
