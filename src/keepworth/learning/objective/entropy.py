"""Entropy: the two rules that steer it from step to step. Plain numbers, no tensors.

The coefficient of a constant bonus needs no rule; it is read from the objective.
"""

from __future__ import annotations


def gate(positives_only: bool, entropy: float, low: float, high: float) -> bool:
    """Whether episodes with negative advantage are left out of the next update: on above `high`, off below `low`,
    unchanged between them.

    Negative advantages spread probability and raise entropy, positive ones concentrate it. entropy: mean over the
    batch's responses of their mean token entropy, at the training temperature, in nats.
    Source: AEPO in QwenLong-L1.5, arXiv 2512.12967. The paper gives no thresholds, and a released snippet filters
    between the thresholds instead; this is the hysteresis its text describes.
    """
    if entropy > high:
        return True
    if entropy < low:
        return False
    return positives_only


def adapted(coefficient: float, entropy: float, target: float, step: float) -> float:
    """coefficient + step if entropy <= target else coefficient - step, never below 0.

    Source: Skywork Open Reasoner 1, arXiv 2505.22312, adaptive entropy control.
    """
    return max(0.0, coefficient + step if entropy <= target else coefficient - step)
