"""Numbers that papers report for worlds, to compare with a curve.

POPGym: maximum over training of the mean episodic return, mean of three trials of 15 million steps with PPO; Morad et al.,
"POPGym: Benchmarking partially observable reinforcement learning", arXiv 2303.01859, copied from a public transcription of the
appendix and not checked against the paper. It has only GRU and the best of its 13 memories."""

from __future__ import annotations

POPGYM: dict[str, tuple[float, float, str]] = {
    "AutoencodeEasy": (-0.283, -0.283, "GRU"),
    "AutoencodeMedium": (-0.425, -0.420, "IndRNN"),
    "AutoencodeHard": (-0.456, -0.448, "IndRNN"),
    "CountRecallEasy": (0.177, 0.509, "LSTM"),
    "CountRecallMedium": (-0.528, -0.519, "PosMLP"),
    "CountRecallHard": (-0.475, -0.470, "PosMLP"),
    "HigherLowerEasy": (0.529, 0.529, "GRU"),
    "HigherLowerMedium": (0.511, 0.513, "IndRNN"),
    "HigherLowerHard": (0.506, 0.509, "IndRNN"),
    "MultiarmedBanditEasy": (0.619, 0.631, "Elman"),
    "MultiarmedBanditMedium": (0.538, 0.598, "TCN"),
    "MultiarmedBanditHard": (0.516, 0.574, "TCN"),
    "NoisyPositionOnlyCartPoleEasy": (0.995, 0.995, "GRU"),
    "NoisyPositionOnlyCartPoleMedium": (0.642, 0.659, "IndRNN"),
    "NoisyPositionOnlyCartPoleHard": (0.390, 0.404, "IndRNN"),
    "PositionOnlyCartPoleEasy": (1.0, 1.0, "GRU"),
    "PositionOnlyCartPoleMedium": (1.0, 1.0, "GRU"),
    "PositionOnlyCartPoleHard": (1.0, 1.0, "GRU"),
    "RepeatFirstEasy": (1.0, 1.0, "GRU"),
    "RepeatFirstMedium": (1.0, 1.0, "GRU"),
    "RepeatFirstHard": (0.940, 0.969, "IndRNN"),
    "RepeatPreviousEasy": (1.0, 1.0, "GRU"),
    "RepeatPreviousMedium": (-0.315, 0.789, "LMU"),
    "RepeatPreviousHard": (-0.428, 0.191, "LMU"),
}
"""Maps a world to GRU's number, the best one, and the memory that has it."""


def in_words(reference: tuple[float, float, str]) -> str:
    """Returns a sentence about what `find_published` returned."""
    gru, best, memory = reference
    others = "the best of 13" if memory == "GRU" else f"the best of 13 {best:.2f} ({memory})"
    return f"Published after 15 million steps of PPO (transcribed, not checked): GRU {gru:.2f}, {others}."


def find_published(world: str) -> tuple[float, float, str] | None:
    """Returns GRU's number, the best one and the memory that has it, for a Gymnasium id; None where they are not known."""
    return POPGYM.get(world.removeprefix("popgym-").rpartition("-v")[0])
