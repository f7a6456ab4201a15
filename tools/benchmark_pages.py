#!/usr/bin/env python3
"""Generates docs/benchmarks_kda.md and docs/benchmarks_extend.md, with their SVG charts, from bench/results/*/*.json.

    tools/benchmark_pages.py            write the pages
    tools/benchmark_pages.py --check    exit 1, naming the files, where the committed pages differ from the committed results
"""

from __future__ import annotations

import argparse
import html
import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load(op: str) -> list[tuple[Path, dict]]:
    """Result files of an operation, each with its record."""
    files = sorted(ROOT.glob(f"bench/results/*/{op}*.json"))
    return [(path, json.loads(path.read_text())) for path in files]


def number(value, digits: int = 3) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "·"
    return f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def header(path: Path, record: dict) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items() if version)
    dirty = " (with uncommitted changes)" if record.get("dirty") else ""
    return [f"Source: `{path.relative_to(ROOT)}`. {record.get('device', '?')}, commit `{record.get('commit', '?')[:12]}`{dirty}, "
            f"{record.get('date', '?')}; {versions}.", ""]


def best_peer(row: dict, key: str = "graph_ms") -> tuple[str, float, bool] | None:
    """Name, time and whether it was recorded elsewhere, of the fastest peer of a row."""
    timed = [(name, peer[key], bool(peer.get("recorded"))) for name, peer in row.get("peers", {}).items() if peer.get(key)]
    return min(timed, key=lambda p: p[1]) if timed else None


def ratio_cell(row: dict) -> str:
    peer = best_peer(row)
    if peer is None or not row.get("graph_ms"):
        return "·"
    ratio = peer[1] / row["graph_ms"]
    return f"{ratio:.2f}x{' !' if ratio < 1 else ''}{' (recorded)' if peer[2] else ''}"


def kda_name(shape: dict) -> str:
    text = f"B{shape['B']} H{shape['HV']} T{shape['T']}"
    if shape.get("H") and shape["H"] != shape["HV"]:
        text += f" (q/k heads {shape['H']})"
    if shape.get("seqlens"):
        lengths = shape["seqlens"]
        text += f", {len(lengths)} x {lengths[0]}" if len(set(lengths)) == 1 else f", [{', '.join(map(str, lengths[:8]))}{', ...' if len(lengths) > 8 else ''}]"
    if shape.get("checkpoints"):
        text += f", checkpoints {shape['checkpoints']}"
    if shape.get("gate", "bounded") != "bounded":
        text += f", {shape['gate']} gate"
    return text


def extend_name(row: dict) -> str:
    s = row["shape"]
    text = f"{s['batch']} x {s['n']} new" + (f" on {s['prefix']}" if s.get("prefix") else "")
    text += f", {s['Lq']}/{s['Lv']}, {s['Hq']}/{s['Hkv']} heads"
    if s.get("window", -1) >= 0:
        text += f", window {s['window']}"
    if s.get("page_size", 1) != 1:
        text += f", pages of {s['page_size']}"
    return text + ("".join(f", {f}" for f in s.get("features", [])))


def kda_table(record: dict) -> list[str]:
    lines = ["| case | hyla ms | per call ms | best peer | ms | ratio | error (peer's) | state error | variant |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in record["rows"]:
        peer = best_peer(row)
        peer_error = row["peers"][peer[0]].get("rel_l2") if peer else None
        lines.append(f"| {kda_name(row['shape'])} | {number(row.get('graph_ms')) if row['pass'] else 'FAILED'} | {number(row.get('call_ms'))} "
                     f"| {peer[0] if peer else '·'} | {number(peer[1]) if peer else '·'} | {ratio_cell(row)} "
                     f"| {number(row.get('rel_l2'), 2)} ({number(peer_error, 2)}) | {number(row.get('state_rel_l2'), 2)} | {row['variant']} |")
    return lines


def extend_table(record: dict) -> list[str]:
    lines = ["| case | hyla ms | useful TFLOP/s | best peer | ms | ratio | error | variant |", "|---|---|---|---|---|---|---|---|"]
    for row in record["rows"]:
        peer = best_peer(row)
        lines.append(f"| {extend_name(row)} | {number(row.get('graph_ms')) if row['pass'] else 'FAILED'} | {number(row.get('useful_tflops'))} "
                     f"| {peer[0] if peer else '·'} | {number(peer[1]) if peer else '·'} | {ratio_cell(row)} | {number(row.get('rel_l2'), 2)} "
                     f"| {row['variant']} |")
    return lines


def weakest(record: dict, name) -> list[str]:
    rows = [(best_peer(row)[1] / row["graph_ms"], row) for row in record["rows"] if row.get("graph_ms") and best_peer(row)]
    rows.sort(key=lambda item: item[0])
    return ["", "Weakest cells: " + "; ".join(f"{name(row)} {ratio:.2f}x" for ratio, row in rows[:3]) + "."] if rows else []


def bars_svg(title: str, bars: list[tuple[str, float, float, str]]) -> str:
    """Horizontal bars: per case hyla's and the best peer's time, relative to the peer. Hatching, so that it reads in black and white."""
    row_height, left, width = 34, 300, 520
    height = 60 + row_height * len(bars)
    top = max([1.0] + [max(ours, theirs) / theirs for _, ours, theirs, _ in bars])
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {height}" font-family="sans-serif" font-size="12">',
             '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
             '<rect width="6" height="6" fill="#fff"/><rect width="3" height="6" fill="#888"/></pattern></defs>',
             f'<rect width="100%" height="100%" fill="#fff"/><text x="10" y="20" font-size="14" font-weight="bold">{html.escape(title)}</text>',
             f'<rect x="{left}" y="30" width="12" height="10" fill="#1b5e9b"/><text x="{left + 16}" y="39">hyla</text>',
             f'<rect x="{left + 70}" y="30" width="12" height="10" fill="url(#hatch)" stroke="#666"/><text x="{left + 86}" y="39">best peer</text>']
    for i, (name, ours, theirs, peer) in enumerate(bars):
        y = 50 + i * row_height
        parts.append(f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{html.escape(name)}</text>')
        for j, (value, fill) in enumerate(((ours, "#1b5e9b"), (theirs, "url(#hatch)"))):
            w = max(1.0, value / theirs / top * width)
            parts.append(f'<rect x="{left}" y="{y + j * 13}" width="{w:.1f}" height="11" fill="{fill}" stroke="#444" stroke-width="0.5"/>')
            label = f"{value:.3g} ms" + (f" ({theirs / ours:.1f}x)" if j == 0 else f" {peer}")
            parts.append(f'<text x="{left + w + 4:.1f}" y="{y + j * 13 + 9}" font-size="10">{html.escape(label)}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def page(op: str, title: str, table, name) -> dict[Path, str]:
    """Files of one operation's page: the Markdown and a chart for each result file with peers."""
    lines = [f"# {title}", "", "Generated by `tools/benchmark_pages.py` from the committed results; do not edit. Times are device time by CUDA graph replay, median of",
             "several rounds; per call is the time of back-to-back calls. Peers marked `recorded` were measured earlier on the same kind of device, others in the same",
             "process, interleaved. A case whose check against float64 failed has no time.", ""]
    files: dict[Path, str] = {}
    found = load(op)
    if not found:
        lines += ["No results are committed yet.", ""]
    for path, record in found:
        lines += [f"## {path.stem}", "", *header(path, record)]
        bars = [(name(row), row["graph_ms"], best_peer(row)[1], best_peer(row)[0]) for row in record["rows"] if row.get("graph_ms") and best_peer(row)]
        if bars:
            chart = ROOT / "docs" / "charts" / f"{path.parent.name}_{path.stem}.svg"
            files[chart] = bars_svg(f"{title}: {path.stem}, time relative to the best peer", bars[:24])
            lines += [f"![time relative to the best peer](charts/{chart.name})", ""]
        lines += [*table(record), *weakest(record, name), ""]
    files[ROOT / "docs" / f"benchmarks_{op}.md"] = "\n".join(lines)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    files = page("kda", "KDA prefill benchmarks", kda_table, lambda row: kda_name(row["shape"]))
    files |= page("extend", "Extend attention benchmarks", extend_table, extend_name)
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if args.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} differs from the committed results: run tools/benchmark_pages.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
