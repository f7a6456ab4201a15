"""The regression guard sees a slower cell and a failed one, and lets noise, new cells and other devices pass."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "gpu_bench"


def record(*rows, device="h200"):
    return {"device": device, "rows": [{"op": "kda", "shape": {"T": t}, "pass": ok, "graph_ms": ms, "spread": spread} for t, ms, spread, ok in rows]}


def run(new, old):
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("new.json", "old.json")]
        for path, content in zip(paths, (new, old)):
            path.write_text(json.dumps(content))
        done = subprocess.run([sys.executable, TOOL, "--compare", *paths], capture_output=True, text=True)
    return done.returncode, done.stdout


old = record((64, 1.0, 0.01, True), (128, 2.0, 0.10, True))
code, text = run(record((64, 1.04, 0.0, True), (128, 2.25, 0.0, True), (256, 9.0, 0.0, True)), old)
assert code == 0 and "2 cells compared" in text and "0 slower" in text, text
code, text = run(record((64, 1.08, 0.0, True)), old)
assert code == 1 and '"T": 64' in text and "1.08" in text, text
code, text = run(record((64, 0.5, 0.0, False)), old)
assert code == 1 and "FAILED" in text, text
code, text = run(record((64, 5.0, 0.0, True), device="h100"), old)
assert code == 0 and "0 cells compared" in text, text
