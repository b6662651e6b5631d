"""Colours as they are seen: contrast, and how the colour-blind tell two of them apart.

Simulation by Machado, Oliveira and Fernandes (2009), full severity, on linear RGB; contrast as in
WCAG 2; distances in CIELAB (CIE76)."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Vision = Literal["usual", "deuteranopia", "protanopia"]
Vector = npt.NDArray[np.float64]
_SEEN: Final[dict[str, list[list[float]]]] = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}
_TO_XYZ: Final = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)
_WHITE: Final = np.array([0.9505, 1.0, 1.089])


def seen(colour: str, vision: Vision) -> Vector:
    """`#rrggbb` as linear RGB in 0..1, through these eyes."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return np.clip(np.array(_SEEN[vision]) @ linear, 0, 1)


def contrast(one: str, other: str, vision: Vision = "usual") -> float:
    """WCAG's contrast ratio, from 1 (the same) to 21."""
    light = sorted(float(_TO_XYZ[1] @ seen(colour, vision)) for colour in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


def distance(one: str, other: str, vision: Vision) -> float:
    """Return how different two colours look; about 2 is just noticed side by side."""
    return float(np.linalg.norm(_lab(one, vision) - _lab(other, vision)))


def _lab(colour: str, vision: Vision) -> Vector:
    t = _TO_XYZ @ seen(colour, vision) / _WHITE
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
