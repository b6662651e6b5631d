"""The palette as the colour-blind see it: text is readable, and outcomes look different.

No meaning depends on colour alone (marks, letters, dashes and hatches repeat it); these are the
colours that stand side by side."""

from __future__ import annotations

import itertools
import re

import pytest

from reports import theme
from tests.support.colour_vision import Vision, contrast, distance

SCHEMES: tuple[theme.Scheme, ...] = ("light", "dark")
EYES: tuple[Vision, ...] = ("usual", "deuteranopia", "protanopia")

both = pytest.mark.parametrize("scheme", SCHEMES)
all_eyes = pytest.mark.parametrize("vision", EYES)


@both
@all_eyes
def test_text_has_contrast_with_its_background(scheme: theme.Scheme, vision: Vision) -> None:
    ink = theme.colours(scheme)
    pairs = [(text, ground) for text in ("ink", "muted") for ground in ("bg", "surface", "sunken")]
    pairs += [("ink", f"ep{number}") for number in range(theme.EPOCH_COLOURS)]
    pairs += [(tone, f"{tone}-bg") for tone in ("good", "bad", "unsure", "none")]
    pairs += [("accent", "surface"), ("accent", "sunken"), ("accent", "bg"), ("bad", "surface")]
    found = {pair: round(contrast(ink[pair[0]], ink[pair[1]], vision), 1) for pair in pairs}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@both
@all_eyes
def test_colours_side_by_side_look_different(scheme: theme.Scheme, vision: Vision) -> None:
    ink = theme.colours(scheme)
    groups = [
        ("ok", "fail", "info"),
        ("good", "bad", "unsure", "none"),
        ("accent", "info", "ink", "good"),
    ]
    pairs = [pair for group in groups for pair in itertools.combinations(group, 2)]
    found = {pair: round(distance(ink[pair[0]], ink[pair[1]], vision)) for pair in pairs}
    assert {pair: far for pair, far in found.items() if far < 14} == {}
    # An epoch is followed by the next one; each cell says its number too.
    epochs = [ink[f"ep{number}"] for number in range(theme.EPOCH_COLOURS)]
    following = zip(epochs, [*epochs[1:], epochs[0]], strict=True)
    assert min(distance(a, b, vision) for a, b in following) > 6


def test_a_style_sheet_loads_nothing_and_uses_defined_colours_only() -> None:
    sheet = str(theme.stylesheet("run_page/page.css"))
    assert "@import" not in sheet
    assert "url(" not in sheet
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", sheet))
    # `--a`, `--w` and the like are set on elements.
    defined = set(re.findall(r"--([a-z0-9-]+):", sheet)) | {"h", "a", "w"}
    assert used <= defined
