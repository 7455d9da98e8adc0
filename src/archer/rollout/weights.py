"""The trainer's weights as an engine takes them, and proof that it has them."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from archer.policy.model import Policy

CHUNK = 1 << 22
"""Elements summed at a time, so that the checksum of a large tensor needs little memory."""


def policy_weights(policy: Policy) -> dict[str, Tensor]:
    """Parameters by the names of a Hugging Face checkpoint, tied ones once, LoRA adapters merged in."""
    model = policy.causal_lm
    adapted = {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    weights: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                continue
            value = parameter.detach()
            owner = adapted.get(name.removesuffix(".base_layer.weight"))
            if owner is not None and name.endswith(".base_layer.weight"):
                for adapter in owner.active_adapters:
                    value = value + owner.get_delta_weight(adapter).to(value.dtype)
            weights[name.replace(".base_layer.", ".")] = value
    return weights


def checksum(weights: Mapping[str, Tensor]) -> str:
    """16 hexadecimal digits over names, shapes, types and every bit of the values."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name]
        digest.update(f"{name} {list(value.shape)} {value.dtype} {_bit_sum(value)}\n".encode())
    return digest.hexdigest()[:16]


def compare(model: nn.Module, weights: Mapping[str, Tensor]) -> tuple[int, list[str]]:
    """Compare an engine's parameters with the trainer's, bit for bit, in the engine's number format.

    Parameters that the engine fused (by its ``packed_modules_mapping``) are compared with their parts, padding of the
    vocabulary is left out, and what a kernel has packed into a form of its own can't be compared.

    Returns:
        How many parameters were compared, and the names of those that differ.
    """
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    compared, different = 0, []
    for name, held in model.named_parameters():
        parts = _parts(name, fused, weights)
        rows = sum(part.shape[0] for part in parts)
        if not parts or held.shape[1:] != parts[0].shape[1:] or held.shape[0] < rows:
            continue
        compared += 1
        if not torch.equal(held[:rows], torch.cat([part.to(held.device, held.dtype) for part in parts])):
            different.append(name)
    return compared, different


def _parts(name: str, fused: Mapping[str, list[str]], weights: Mapping[str, Tensor]) -> list[Tensor]:
    if name in weights:
        return [weights[name]]
    *path, layer, kind = name.split(".")
    names = [".".join([*path, part, kind]) for part in fused.get(layer, [])]
    return [weights[part] for part in names] if all(part in weights for part in names) else []


def _bit_sum(value: Tensor) -> int:
    """Sum over the elements of bits times an odd number that grows with the place, modulo 2**64."""
    form = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    flat = value.detach().contiguous().reshape(-1).view(form)
    total = 0
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK].long()
        place = torch.arange(start, start + len(part), device=part.device)
        total += int((part * (2 * place + 1)).sum())
    return total % 2**64
