"""Torch tensors as the executor's C interface takes them."""

from __future__ import annotations

import torch

from skrull._native import executor
from skrull.errors import InvalidArgumentError, UnsupportedError

# Codes of skrull_attention_tensor.dtype.
_CODES = {
    torch.float16: 0,
    torch.bfloat16: 1,
    torch.float32: 2,
    torch.float64: 3,
}


def dtype_code(dtype: torch.dtype) -> int:
    """The code of a type.

    Raises:
        UnsupportedError: It is none of float16, bfloat16, float32 and float64.
    """
    code = _CODES.get(dtype)
    if code is None:
        names = ", ".join(str(known).removeprefix("torch.") for known in _CODES)
        raise UnsupportedError(f"dtype: must be one of {names}, is {dtype}")
    return code


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """What sums over elements of ``dtype``, and log-sum-exps, are kept in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check(name: str, tensor: torch.Tensor, device: torch.device) -> None:
    """Refuses a tensor that the executor could not even look at.

    Shapes and types beyond that are the executor's to check: it knows the plan.

    Raises:
        InvalidArgumentError: It is not [rows, heads, head_dim], or is on another
            device.
    """
    if tensor.dim() != 3:
        raise InvalidArgumentError(
            f"{name}: must be [rows, heads, head_dim], is {list(tensor.shape)}",
            field=name,
        )
    if tensor.device != device:
        raise InvalidArgumentError(
            f"{name}: is on {tensor.device}, where the session is on {device}",
            field=name,
        )


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if the executor can read it as it lies, else a copy.

    It reads rows of any distance, with heads inside rows or rows inside heads, as
    long as elements of a head lie next to each other and nothing overlaps: an
    expanded gradient, such as that of a sum, does.

    Args:
        tensor: [rows, heads, head_dim].
    """
    rows, heads, dim = tensor.shape
    row, head, element = tensor.stride()
    row_major = (heads == 1 or head >= dim) and (
        rows == 1 or row >= (heads - 1) * head + dim
    )
    head_major = (rows == 1 or row >= dim) and (
        heads == 1 or head >= (rows - 1) * row + dim
    )
    if (element == 1 or dim == 1) and (row_major or head_major):
        return tensor
    return tensor.contiguous()


def with_tail(tensor: torch.Tensor, tail_rows: int) -> torch.Tensor:
    """Keys or values with finite memory behind their last row.

    Args:
        tensor: [rows, heads, head_dim].
        tail_rows: Rows behind the last one that the backend may read.

    Returns:
        A tensor of the same shape and values; a copy if ``tail_rows`` is not 0.
    """
    if tail_rows == 0:
        return strided(tensor)
    rows = tensor.shape[0]
    padded = tensor.new_empty((rows + tail_rows, *tensor.shape[1:]))
    padded[:rows] = tensor
    padded[rows:] = 0
    return padded[:rows]


def view(tensor: torch.Tensor) -> executor.Tensor:
    """A tensor [rows, heads, dim] as C sees it; ``tensor`` must outlive it."""
    rows, heads, dim = tensor.shape
    row_stride, head_stride, _ = tensor.stride()
    return executor.Tensor(
        data=tensor.data_ptr() or None,
        rows=rows,
        row_stride=row_stride,
        head_stride=head_stride,
        dtype=dtype_code(tensor.dtype),
        heads=heads,
        dim=dim,
    )


def lse_view(lse: torch.Tensor, heads: int, *, head_major: bool) -> torch.Tensor:
    """The log-sum-exps [rows * heads] as [rows, heads, 1] in the backend's order."""
    rows = lse.numel() // heads
    if head_major:
        return lse.view(heads, rows).t().unsqueeze(2)
    return lse.view(rows, heads).unsqueeze(2)
