"""Colours can be read, and states told apart, by every eye and in every look."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

CSS = Path(__file__).parents[3] / "static/css"
TOKEN = re.compile(r"(--[a-z0-9-]+): light-dark\((#[0-9A-F]{6})(?:[0-9A-F]{2})?, (#[0-9A-F]{6})")
LOOKS = ("light", "dark")
STATES = ("success", "failed", "running", "retry", "deferred", "frozen", "neutral")

# Machado 2009, severity 1.0, on linear RGB: how each kind of colour-blind eye sees.
EYES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# The smallest distance between two state hues, in CIEDE2000.
DISTANCE_LEAST = {"light": 9.8, "dark": 11.9}

Colour = tuple[float, float, float]


def tokens(sheet: str) -> dict[str, dict[str, str]]:
    """For each look, the colour of each token."""
    text = (CSS / sheet).read_text(encoding="utf-8")
    found = TOKEN.findall(text)
    return {
        "light": {name: light for name, light, _ in found},
        "dark": {name: dark for name, _, dark in found},
    }


def linear(colour: str) -> Colour:
    """Linear RGB of a hexadecimal colour."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return red, green, blue


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    lights = sorted(
        0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(colour: Colour) -> Colour:
    """CIE Lab under D65."""
    r, g, b = colour
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883
    fx, fy, fz = (
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def distance(one: Colour, other: Colour) -> float:
    """CIEDE2000. Source: Sharma, Wu, Dalal 2005, equations 2 to 22."""
    l1, a1, b1 = one
    l2, a2, b2 = other
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25**7))) / 2
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    d_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    h = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    lightness, c = (l1 + l2) / 2, (c1 + c2) / 2
    t = (
        1
        - 0.17 * math.cos(math.radians(h - 30))
        + 0.24 * math.cos(math.radians(2 * h))
        + 0.32 * math.cos(math.radians(3 * h + 6))
        - 0.20 * math.cos(math.radians(4 * h - 63))
    )
    s_l = 1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2)
    s_c, s_h = 1 + 0.045 * c, 1 + 0.015 * c * t
    around = 60 * math.exp(-(((h - 275) / 25) ** 2))
    r_t = -2 * math.sqrt(c**7 / (c**7 + 25**7)) * math.sin(math.radians(around))
    parts = ((l2 - l1) / s_l, (c2 - c1) / s_c, d_h / s_h)
    return math.sqrt(sum(part**2 for part in parts) + r_t * parts[1] * parts[2])


def seen(colour: str, eye: str) -> Colour:
    """The colour in Lab as this eye sees it."""
    channels = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(w * c for w, c in zip(row, channels, strict=True))))
        for row in EYES[eye]
    )
    return lab((red, green, blue))


def test_the_distance_agrees_with_published_pairs() -> None:
    # Sharma, Wu, Dalal 2005, table 1, pairs 1, 7 and 17.
    assert distance((50, 2.6772, -79.7751), (50, 0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert distance((50, 0, 0), (50, -1, 2)) == pytest.approx(2.3669, abs=1e-4)
    assert distance((50, 2.5, 0), (73, 25, -18)) == pytest.approx(27.1492, abs=1e-4)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("state", STATES)
def test_a_state_hue_stands_out_from_the_panel_and_carries_its_glyph(look: str, state: str) -> None:
    colours = tokens("tokens.css")[look]
    hue = colours[f"--state-{state}"]
    assert contrast(hue, colours["--panel"]) >= 4.5
    assert contrast(hue, colours["--mark-glyph"]) >= 4.5


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("ink", ["--ink", "--ink-soft", "--accent-text", "--danger"])
@pytest.mark.parametrize(
    "under", ["--surface", "--panel", "--panel-raised", "--hover", "--hatch-under", "--log-surface"]
)
def test_text_can_be_read_on_every_surface(look: str, ink: str, under: str) -> None:
    colours = tokens("tokens.css")[look]
    assert contrast(colours[ink], colours[under]) >= 4.5


@pytest.mark.parametrize("look", LOOKS)
def test_text_can_be_read_across_the_hatch_of_filtered_rows(look: str) -> None:
    colours = tokens("tokens.css")[look]
    assert contrast(colours["--ink"], colours["--hatch"]) >= 4.5


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("colour", ["red", "green", "yellow", "blue", "magenta", "cyan"])
def test_terminal_colours_can_be_read(look: str, colour: str) -> None:
    colours = tokens("tokens.css")[look]
    assert contrast(colours[f"--ansi-{colour}"], colours["--log-surface"]) >= 4.5


@pytest.mark.parametrize("look", LOOKS)
def test_controls_have_a_visible_edge(look: str) -> None:
    colours = tokens("tokens.css")[look]
    assert contrast(colours["--line-strong"], colours["--panel"]) >= 3
    assert contrast(colours["--focus"], colours["--panel"]) >= 3
    assert contrast(colours["--accent"], colours["--accent-ink"]) >= 4.5


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("eye", EYES)
def test_two_state_hues_are_told_apart_by_every_eye(look: str, eye: str) -> None:
    colours = tokens("tokens.css")[look]
    fills = [state for state in STATES if state != "neutral"]  # neutral is told by its outline
    distances = {
        (one, other): distance(
            seen(colours[f"--state-{one}"], eye), seen(colours[f"--state-{other}"], eye)
        )
        for one, other in itertools.combinations(fills, 2)
    }
    nearest = min(distances, key=lambda pair: distances[pair])
    assert distances[nearest] >= DISTANCE_LEAST[look], nearest


@pytest.mark.parametrize("look", LOOKS)
def test_the_high_contrast_look_reaches_seven_to_one(look: str) -> None:
    colours = {**tokens("tokens.css")[look], **tokens("contrast.css")[look]}
    for name in ("--ink", "--ink-soft", "--accent-text", "--danger"):
        assert contrast(colours[name], colours["--panel"]) >= 7, name
    for state in STATES:
        assert contrast(colours[f"--state-{state}"], colours["--panel"]) >= 7, state


def test_the_high_contrast_look_replaces_only_names_that_exist() -> None:
    assert set(tokens("contrast.css")["light"]) <= set(tokens("tokens.css")["light"])


@pytest.mark.parametrize("sheet", ["base.css", "parts.css"])
def test_colours_are_named_in_the_tokens_alone(sheet: str) -> None:
    text = (CSS / sheet).read_text(encoding="utf-8")
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", text)


@pytest.mark.parametrize("sheet", ["base.css", "parts.css"])
def test_every_token_that_is_used_exists(sheet: str) -> None:
    known = set(re.findall(r"(--[a-z0-9-]+):", (CSS / "tokens.css").read_text(encoding="utf-8")))
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", (CSS / sheet).read_text(encoding="utf-8")))
    assert used <= known
