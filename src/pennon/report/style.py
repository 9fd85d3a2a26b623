"""The page's style: system fonts, light and dark, from a phone's width to a laptop's. Nothing is fetched."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f6f6f3; --surface: #ffffff; --ink: #1b1f24; --quiet: #59636e; --line: #e2e4e0; --rail: #e9ebe7;
  --live: #9fb3c4; --seg-a: #2c6aa8; --seg-b: #5d96cc; --seg-edge: #ffffff; --dots: #ffffff;
  --good: #1f7a46; --good-soft: #e4f3e9; --warn: #8a5a00; --warn-soft: #fdf1d6; --warn-line: #e0a52b;
  --bad: #b3261e; --bad-soft: #fce8e6; --bad-line: #d9574f; --stale: #f6d5b8; --stale-line: #b8610f; --accent: #2c6aa8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #121518; --surface: #1a1e22; --ink: #e9ecef; --quiet: #a0aab4; --line: #2c3238; --rail: #2a3036;
    --live: #566a7c; --seg-a: #4f8fcb; --seg-b: #2f6396; --seg-edge: #1a1e22; --dots: #ffffff;
    --good: #7fd3a0; --good-soft: #173324; --warn: #f2c25c; --warn-soft: #352a10; --warn-line: #a97c1e;
    --bad: #ff9d94; --bad-soft: #3d1a18; --bad-line: #c9463d; --stale: #4a2f16; --stale-line: #e39a55;
    --accent: #86b8e8;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 36px 24px 56px; }
h1, h2, h3 { line-height: 1.25; margin: 0; font-weight: 650; overflow-wrap: anywhere; }
h1 { font-size: 28px; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 44px 0 12px; }
h3 { font-size: 17px; }
h4 { font-size: 13px; margin: 20px 0 6px; font-weight: 600; color: var(--quiet); }
p { margin: 0; overflow-wrap: anywhere; }
a { color: inherit; text-decoration-color: var(--line); text-underline-offset: 3px; }
a:hover { text-decoration-color: currentColor; }
code { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
.quiet { color: var(--quiet); }
.eyebrow { color: var(--quiet); font-size: 13px; margin-bottom: 4px; }
.where { margin-top: 4px; color: var(--quiet); font-size: 13px; }
.headline {
  margin: 22px 0 0; padding: 14px 18px; font-size: 17px; line-height: 1.45; background: var(--surface);
  border: 1px solid var(--line); border-left: 5px solid var(--good); border-radius: 8px;
}
.headline.warn { border-left-color: var(--warn-line); }
.headline.bad { border-left-color: var(--bad-line); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; margin: 14px 0 0; }
.tiles div { background: var(--surface); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tiles dt { color: var(--quiet); font-size: 13px; }
.tiles dd { margin: 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { display: block; font-size: 12.5px; font-weight: 400; color: var(--quiet); }
.notices { list-style: none; margin: 14px 0 0; padding: 0; display: grid; gap: 6px; }
.notices li { padding: 8px 14px; border-radius: 8px; font-size: 14px; overflow-wrap: anywhere; }
.notices .note { background: var(--rail); color: var(--quiet); }
.notices .warn { background: var(--warn-soft); color: var(--warn); }
.notices .bad { background: var(--bad-soft); color: var(--bad); }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; }
.card + .card { margin-top: 14px; }
.chip { display: inline-block; padding: 0 8px; border-radius: 99px; font-size: 12.5px; line-height: 20px;
  font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap;
  background: var(--rail); color: var(--quiet); }
.chip.good { background: var(--good-soft); color: var(--good); }
.chip.warn { background: var(--warn-soft); color: var(--warn); }
.chip.bad { background: var(--bad-soft); color: var(--bad); }
svg { display: block; overflow: visible; }
.patterns { position: absolute; }
.lane { display: grid; grid-template-columns: 168px minmax(0, 1fr); gap: 16px; align-items: center; margin-top: 14px; }
.lane:first-child { margin-top: 0; align-items: end; }
.lane:first-child .lane-label { padding-bottom: 18px; }
.lane-label { display: flex; flex-wrap: wrap; gap: 0 8px; align-items: baseline; font-size: 14px; min-width: 0;
  overflow-wrap: anywhere; }
.lane-label > a, .lane-label > strong { flex-basis: 100%; }
.lane-label .quiet { font-size: 13px; }
.live, .hover { shape-rendering: crispEdges; } .live { fill: var(--live); } .deleted { fill: url(#deleted); }
.edged { stroke: var(--surface); stroke-width: 1.5; }
.segment, .damaged { stroke: var(--seg-edge); stroke-width: 1.5; rx: 3px; }
.segment.a { fill: var(--seg-a); } .segment.b { fill: var(--seg-b); }
.damaged { fill: var(--bad-soft); stroke: var(--bad-line); stroke-dasharray: 4 2; }
.unused { fill: var(--surface); stroke: var(--quiet); stroke-dasharray: 4 2; rx: 3px; }
.thread { stroke: none; rx: 0; opacity: .55; }
.damaged.unused { fill: var(--surface); stroke: var(--quiet); stroke-dasharray: 4 2; rx: 3px; }
.thread { fill: var(--bad-line); }
.mark { fill: var(--bad); font-weight: 700; font-size: 13px; text-anchor: middle; pointer-events: none; }
.thin.segment, .thin.damaged, .thin.stale { stroke: none; rx: 0; } .thin.damaged { fill: var(--bad-line); }
.moved { fill: url(#moved); }
.stale { fill: url(#stale); stroke: var(--stale-line); rx: 3px; }
.overlap { fill: none; stroke: var(--bad-line); stroke-width: 2; rx: 3px; pointer-events: visible; }
.uncovered { fill: url(#uncovered); } .lane-ground { fill: var(--rail); rx: 4px; } .rail { fill: var(--rail); rx: 3px; }
.p-uncovered { fill: var(--warn-soft); } .p-uncovered-line { fill: var(--warn-line); opacity: .75; }
.p-deleted { fill: var(--bad-soft); } .p-deleted-line { fill: var(--bad-line); }
.p-moved { fill: var(--dots); } .p-stale { fill: var(--stale); }
.p-stale-line { stroke: var(--stale-line); stroke-width: 1; fill: none; }
.good-fill { fill: var(--good); rx: 3px; } .warn-fill { fill: var(--warn-line); rx: 3px; }
.bar { fill: var(--seg-a); } .hover { fill: transparent; } .hover:hover { fill: var(--ink); fill-opacity: .08; }
.foot { stroke: var(--line); }
.figure, .tick { fill: var(--quiet); font-size: 12px; text-anchor: middle; font-variant-numeric: tabular-nums; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 18px 0 0; padding: 12px 0 0;
  border-top: 1px solid var(--line); font-size: 13px; color: var(--quiet); }
.legend li { display: flex; align-items: center; gap: 7px; }
.legend svg { overflow: hidden; border-radius: 3px; flex: none; }
.scroll { overflow-x: auto; margin: 0 -4px; padding: 0 4px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
table.narrow { width: auto; }
th { text-align: left; font-weight: 600; font-size: 12.5px; color: var(--quiet); white-space: nowrap; }
th, td { padding: 6px 18px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.fixed { white-space: nowrap; }
.late { text-align: right; }
.wide { min-width: 220px; overflow-wrap: anywhere; }
.state { max-width: 420px; overflow-wrap: anywhere; }
.title { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; }
.facts { display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 12px 0 0; font-size: 14px; }
.facts div { display: flex; gap: 6px; }
.facts dt { color: var(--quiet); } .facts dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.meter { margin-top: 12px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 8px 32px; }
.charts h4 { margin-top: 18px; }
.scale { display: flex; justify-content: space-between; color: var(--quiet); font-size: 12.5px; margin-top: 3px;
  font-variant-numeric: tabular-nums; }
.ranked { list-style: none; margin: 6px 0 0; padding: 0; display: grid; gap: 4px; font-size: 13px; }
.ranked li { display: grid; grid-template-columns: minmax(56px, 28%) minmax(0, 1fr) auto; gap: 10px;
  align-items: center; }
.ranked span:first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ranked span:last-child { font-variant-numeric: tabular-nums; color: var(--quiet); min-width: 48px; text-align: right; }
.measures { margin: 2px 0 6px; gap: 2px 16px; font-size: 13px; }
.charts p { font-size: 13.5px; color: var(--quiet); margin-top: 6px; }
details summary { cursor: pointer; color: var(--accent); font-size: 14px; padding: 8px 0 0; }
footer { margin-top: 44px; color: var(--quiet); font-size: 13px; }
@media (max-width: 640px) {
  main { padding: 22px 14px 40px; }
  h1 { font-size: 23px; } h2 { margin-top: 34px; }
  .headline { font-size: 16px; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  .tiles div:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .card { padding: 14px; }
  .lane { grid-template-columns: minmax(0, 1fr); gap: 5px; margin-top: 18px; }
  .lane:first-child .lane-label { padding-bottom: 0; }
  .lane-label > a, .lane-label > strong { flex-basis: auto; }
  .stack thead { display: none; }
  .stack tr { display: grid; grid-template-columns: auto 1fr; gap: 0 10px; padding: 8px 0;
    border-bottom: 1px solid var(--line); }
  .stack tbody tr:last-child { border-bottom: 0; }
  .stack td { border: 0; padding: 1px 0; min-width: 0; }
  .stack td.number { text-align: left; }
  .stack td.wide { grid-column: 1 / -1; }
}
@media print { body { background: none; } .card { break-inside: avoid; } }
"""
