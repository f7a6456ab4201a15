"""Times flash-linear-attention's chunk_kda and hyla on the same inputs in one process, interleaved, after checking both against float64.

    python bench/peers/fla_kda.py --out bench/results/h200/kda_peers.json [--shapes B1T8192H4 ...] [--max-seconds 300]

Needs torch with a GPU, flash-linear-attention, and the hyla Python package. Each row follows the format of docs/benchmarks.md: graph replay and
per-call time, median of several rounds A B A B, with the relative error of each against a float64 recurrence on one sampled head.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time

import torch

import hyla
import hyla.fla

DEFAULT = ["B1T64H4", "B1T1024H4", "B1T8192H4", "B1T8192H12", "B1T8192H64", "B8T1024H16"]


def make_inputs(B: int, T: int, H: int, seed: int = 1) -> dict:
    gen = torch.Generator(device="cuda").manual_seed(seed)

    def randn(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device="cuda", generator=gen).to(dtype)

    return dict(q=randn(B, T, H, 128), k=randn(B, T, H, 128), v=randn(B, T, H, 128), g=randn(B, T, H, 128), beta=randn(B, T, H),
                A_log=randn(H, dtype=torch.float32) * 0.5, dt_bias=randn(H * 128, dtype=torch.float32),
                initial_state=randn(B, H, 128, 128, dtype=torch.float32) * 0.1)


def call(fn, x: dict):
    return fn(x["q"], x["k"], x["v"], x["g"], x["beta"], initial_state=x["initial_state"], output_final_state=True, use_qk_l2norm_in_kernel=True,
              use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=-5.0, A_log=x["A_log"], dt_bias=x["dt_bias"])


def reference_head(x: dict, b: int, h: int):
    """float64 recurrence of one head on the CPU."""
    q, k, v, g = (x[n][b, :, h].double().cpu() for n in ("q", "k", "v", "g"))
    beta = x["beta"][b, :, h].double().cpu().sigmoid()
    q = q * (q.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    k = k * (k.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    a = x["A_log"][h].double().exp().cpu()
    decay = (-5.0 * torch.sigmoid(a * (g + x["dt_bias"].view(-1, 128)[h].double().cpu()))).exp()
    S = x["initial_state"][b, h].double().cpu().clone()
    out = torch.empty_like(v)
    for t in range(q.shape[0]):
        S *= decay[t][:, None]
        S += torch.outer(beta[t] * k[t], v[t] - k[t] @ S)
        out[t] = (S.T @ q[t]) * 128**-0.5
    return out, S


def rel(a, b) -> float:
    return ((a.double().cpu() - b).norm() / b.norm()).item()


def graph_of(fn):
    fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        keep = fn()
    return graph, keep


def time_ms(fn, target_ms: float = 20.0) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    fn()
    start.record(); fn(); stop.record(); stop.synchronize()
    n = max(1, min(200, int(target_ms / max(start.elapsed_time(stop), 1e-3))))
    start.record()
    for _ in range(n):
        fn()
    stop.record(); stop.synchronize()
    return start.elapsed_time(stop) / n


def measure(B: int, T: int, H: int, peers: dict) -> dict:
    x = make_inputs(B, T, H)
    b, h = B - 1, H - 1
    want_o, want_s = reference_head(x, b, h)
    row = {"op": "kda", "shape": {"B": B, "T": T, "H": H, "HV": H, "K": 128, "V": 128, "seqlens": None, "gate": "bounded", "state": "fp32",
                                  "checkpoints": None}}
    graphs, entries = {}, {}
    with torch.inference_mode():
        for name, fn in peers.items():
            run = lambda fn=fn: call(fn, x)
            o, s = run()
            entries[name] = {"rel_l2": rel(o[b, :, h], want_o), "state_rel_l2": rel(s[b, h], want_s)}
            graphs[name] = (graph_of(run), run)
        samples = {name: ([], []) for name in peers}
        for _ in range(5):  # A B A B ...
            for name, ((graph, _), run) in graphs.items():
                samples[name][0].append(time_ms(graph.replay))
        for _ in range(3):
            for name, (_, run) in graphs.items():
                samples[name][1].append(time_ms(run))
    for name, (graph_ms, call_ms) in samples.items():
        entries[name] |= {"graph_ms": statistics.median(graph_ms), "call_ms": statistics.median(call_ms),
                          "spread": (max(graph_ms) - min(graph_ms)) / statistics.median(graph_ms)}
    row["tolerance"] = 6e-3
    row["pass"] = entries["hyla"]["rel_l2"] <= 6e-3 and entries["hyla"]["state_rel_l2"] <= 5e-3
    row |= entries.pop("hyla")
    row["plan"] = str(hyla.plan_kda(x["q"], x["k"], x["v"], x["g"], x["beta"], A_log=x["A_log"], dt_bias=x["dt_bias"], beta_is_logits=True,
                                    initial_state=x["initial_state"], final_state=torch.empty_like(x["initial_state"])))
    row["variant"] = row["plan"].split()[0]
    if not row["pass"]:
        row.pop("graph_ms"), row.pop("call_ms")
    row["peers"] = entries
    return row


def git(*args: str) -> str:
    try:
        return subprocess.run(["git", *args], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="kda_peers.json")
    parser.add_argument("--shapes", nargs="*", default=DEFAULT, help="B1T8192H4 ...")
    parser.add_argument("--max-seconds", type=float, default=300)
    parser.add_argument("--commit", default="", help="commit of the measured tree, where git is not at hand")
    args = parser.parse_args()

    peers = {"hyla": hyla.fla.chunk_kda}
    versions = {"hyla": hyla.__version__, "torch": torch.__version__, "cuda": torch.version.cuda}
    try:
        import fla
        import triton
        from fla.ops.kda import chunk_kda

        peers["fla"] = chunk_kda
        versions |= {"fla": fla.__version__, "triton": triton.__version__}
    except ImportError as error:
        print(f"flash-linear-attention is not importable ({error}): hyla alone", file=sys.stderr)

    began, rows = time.time(), []
    for shape in args.shapes:
        if time.time() - began > args.max_seconds:
            print(f"stopping before {shape}: {args.max_seconds:.0f} s are over", file=sys.stderr)
            break
        B, T, H = map(int, re.fullmatch(r"B(\d+)T(\d+)H(\d+)", shape).groups())
        row = measure(B, T, H, peers)
        rows.append(row)
        fla_ms = row["peers"].get("fla", {}).get("graph_ms")
        print(f"{shape:14s} hyla {row.get('graph_ms', float('nan')):.4f} ms (call {row.get('call_ms', float('nan')):.4f}, rel {row['rel_l2']:.2e})"
              + (f"  fla {fla_ms:.4f} ms (rel {row['peers']['fla']['rel_l2']:.2e})  {fla_ms / row['graph_ms']:.2f}x" if fla_ms and row["pass"] else ""),
              flush=True)
    record = {"device": torch.cuda.get_device_name(), "commit": args.commit or git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain")),
              "date": time.strftime("%Y-%m-%d"), "versions": versions, "rows": rows}
    with open(args.out, "w") as file:
        json.dump(record, file, indent=1)
    return 0 if all(row["pass"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
