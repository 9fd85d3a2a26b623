"""Small charts as SVG without a view box: places across are percentages, so that they fill any width undistorted."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pennon.index.description import Bar
from pennon.wording import percent

BAR_AREA = 72


def rect(x: float, width: float, y: float, height: float, style: str, title: str = "") -> str:
    """A rectangle; `x` and `width` are percentages, `y` and `height` pixels."""
    shape = f'<rect class="{style}" x="{x:.3f}%" width="{width:.3f}%" y="{y:.1f}" height="{height:.1f}"'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def svg(height: float, shapes: Sequence[str], label: str) -> str:
    body = "".join(shapes)
    return f'<svg width="100%" height="{height:.0f}" role="img" aria-label="{escape(label)}">{body}</svg>'


def bars(values: Sequence[Bar], label: str) -> str:
    """Upright bars on a common foot; what is not zero can always be seen."""
    most, width = max((bar.value for bar in values), default=0) or 1, 100 / max(1, len(values))
    gap = 0.1 * width
    shapes: list[str] = []
    for at, bar in enumerate(values):
        height = max(2.0, bar.value / most * BAR_AREA) if bar.value else 0.0
        shapes.append(rect(at * width + gap, width - 2 * gap, BAR_AREA - height, height, "bar"))
        # The whole column answers to the pointer, not only the bar.
        shapes.append(rect(at * width, width, 0, BAR_AREA, "hover", bar.title))
    foot = f'<line class="foot" x1="0" x2="100%" y1="{BAR_AREA}" y2="{BAR_AREA}"/>'
    return svg(BAR_AREA + 1, [*shapes, foot], label)


def ranked(values: Sequence[Bar], label: str) -> str:
    """A line for each bar: its label, the bar, and its value."""
    most = max((bar.value for bar in values), default=0) or 1
    lines = "".join(
        f"<li><span>{escape(bar.label)}</span>{svg(8, [rect(0, 100 * bar.value / most, 0, 8, 'bar')], bar.title)}"
        f"<span>{bar.value:,.0f}</span></li>"
        for bar in values
    )
    return f'<ol class="ranked" aria-label="{escape(label)}">{lines}</ol>'


def meter(share: float, style: str) -> str:
    """How much of a whole, as a thin bar."""
    return svg(6, [rect(0, 100, 0, 6, "rail"), rect(0, 100 * share, 0, 6, style)], percent(share))
