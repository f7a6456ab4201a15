"""Times sglang's Triton extend kernel (1-3 stages), torch's cuDNN and flash attention, and hyla on the same inputs in one process,
interleaved, after checking each against a float64 softmax on sampled rows.

    python bench/peers/extend_peers.py --out bench/results/h200/extend_peers.json [--cases d128_16384 ...] [--max-seconds 300]

Needs torch with a GPU and the hyla Python package; sglang's kernel is read from its wheel (pip download --no-deps sglang) if one lies in ./.whl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import torch

import hyla
import hyla.sglang
import sglang_triton
from fla_kda import git, graph_of, time_ms

# name: (batch, n, prefix, Hq, Hkv, Lq, Lv, window)
CASES = {
    "d64_16384": (1, 16384, 0, 16, 8, 64, 64, -1),
    "d128_16384": (1, 16384, 0, 16, 8, 128, 128, -1),
    "d128_16384_32_4": (1, 16384, 0, 32, 4, 128, 128, -1),
    "d256_16384": (1, 16384, 0, 16, 8, 256, 256, -1),
    "d512_16384": (1, 16384, 0, 16, 8, 512, 512, -1),
    "mla_8192": (1, 8192, 0, 16, 1, 576, 512, -1),
    "d192_128_16384": (1, 16384, 0, 16, 16, 192, 128, -1),
    "d128_prefix": (1, 1024, 15360, 32, 8, 128, 128, -1),
    "d256_prefix": (1, 1024, 15360, 32, 8, 256, 256, -1),
    "d128_batch16": (16, 128, 4096, 32, 8, 128, 128, -1),
    "d256_batch16": (16, 128, 4096, 32, 8, 256, 256, -1),
    "mla_prefix": (1, 1024, 15360, 16, 1, 576, 512, -1),
    "d128_window": (1, 16384, 0, 16, 8, 128, 128, 1024),
    "d256_window": (1, 16384, 0, 16, 8, 256, 256, 1024),
    "d128_decode": (1, 8, 32768, 32, 8, 128, 128, -1),
}


def make(batch, n, prefix, Hq, Hkv, Lq, Lv, window, seed=1):
    gen = torch.Generator(device="cuda").manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, device="cuda", generator=gen).bfloat16()

    q, k = randn(batch * n, Hq, Lq), randn(batch * n, Hkv, Lq)
    latent = Lq == 576
    slots = batch * prefix + 64
    k_buffer = randn(slots, Hkv, Lq)
    v, v_buffer = (k[..., :Lv], k_buffer[..., :Lv]) if latent else (randn(batch * n, Hkv, Lv), randn(slots, Hkv, Lv))
    indices = torch.randperm(slots, device="cuda", generator=gen)[: batch * prefix]
    indptr = lambda step: torch.arange(batch + 1, device="cuda", dtype=torch.int32) * step
    return dict(q_extend=q, k_extend=k, v_extend=v, k_buffer=k_buffer, v_buffer=v_buffer, qo_indptr=indptr(n), kv_indptr=indptr(prefix),
                kv_indices=indices)


def reference_rows(x, case, rows):
    """float64 attention of (token, head) pairs, as a list of vectors."""
    batch, n, prefix, Hq, Hkv, Lq, Lv, window = case
    out = []
    for token, head in rows:
        i, at = divmod(token, n)
        slots = x["kv_indices"][i * prefix : (i + 1) * prefix]
        kv = head // (Hq // Hkv)
        lo = max(0, prefix + at - window) if window >= 0 else 0
        keys = torch.cat([x["k_buffer"][slots, kv], x["k_extend"][i * n : token + 1, kv]])[lo:].double()
        values = torch.cat([x["v_buffer"][slots, kv], x["v_extend"][i * n : token + 1, kv]])[lo:].double()
        weight = torch.softmax(keys @ x["q_extend"][token, head].double() * Lq**-0.5, 0)
        out.append(weight @ values)
    return torch.stack(out)


def pairs(n, prefix, window):
    """(query, key) pairs that the mask allows, for one request and head."""
    full = n * prefix + n * (n + 1) // 2
    if window < 0:
        return full
    return sum(min(prefix + q + 1, window + 1) for q in range(n))


def measure(name, case, triton_module):
    batch, n, prefix, Hq, Hkv, Lq, Lv, window = case
    x = make(*case)
    out = torch.empty(batch * n, Hq, Lv, dtype=torch.bfloat16, device="cuda")
    common = (x["q_extend"], x["k_extend"], x["v_extend"], out, x["k_buffer"], x["v_buffer"], x["qo_indptr"], x["kv_indptr"], x["kv_indices"], None, True,
              None, n, 1.0, 1.0)
    runs = {"hyla": lambda: hyla.sglang.extend_attention_fwd(*common, sliding_window_size=window)}
    if triton_module is not None:
        for stages in (1, 2, 3):
            def run(stages=stages):
                triton_module.set_stages(stages)
                triton_module.extend_attention_fwd(*common, sliding_window_size=window)
            runs[f"triton{stages}"] = run
    if prefix == 0 and batch == 1 and window < 0 and Lq <= 256:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (x[t].transpose(0, 1)[None] for t in ("q_extend", "k_extend", "v_extend"))
        for peer, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("fa2", SDPBackend.FLASH_ATTENTION)):
            def run(backend=backend):
                with sdpa_kernel(backend):
                    out.copy_(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1))
            runs[peer] = run

    rows = [(t, h) for t in {0, 1, batch * n // 3, batch * n - 1} for h in {0, Hq - 1}]
    want = reference_rows(x, case, rows)
    entries, graphs = {}, {}
    for peer, run in runs.items():
        try:
            out.fill_(float("nan"))
            run()
            got = torch.stack([out[t, h] for t, h in rows]).double()
            entries[peer] = {"rel_l2": ((got - want).norm() / want.norm()).item()}
            graphs[peer] = graph_of(run)[0]
        except Exception as error:  # a peer that cannot run this shape (shared memory, head dim) is left out, and said
            print(f"  {name}: {peer} does not run: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            entries.pop(peer, None)
            torch.cuda.synchronize()
    samples = {peer: [] for peer in graphs}
    for _ in range(5):
        for peer, graph in graphs.items():
            samples[peer].append(time_ms(graph.replay))
    calls = [time_ms(runs["hyla"]) for _ in range(3)] if "hyla" in graphs else []
    flop = 2 * pairs(n, prefix, window) * batch * Hq * (Lq + Lv)
    for peer, ms in samples.items():
        entries[peer] |= {"graph_ms": statistics.median(ms), "spread": (max(ms) - min(ms)) / statistics.median(ms),
                          "useful_tflops": flop / statistics.median(ms) / 1e9}
    row = {"op": "extend", "case": name, "shape": dict(batch=batch, n=n, prefix=prefix, Hq=Hq, Hkv=Hkv, Lq=Lq, Lv=Lv, page_size=1, window=window,
                                                       dtype="bf16", features=[]), "tolerance": 4e-3}
    mine = entries.pop("hyla", {"rel_l2": float("nan")})
    row["pass"] = mine["rel_l2"] <= 4e-3
    if not row["pass"]:
        mine = {"rel_l2": mine["rel_l2"]}
    row |= mine
    if calls:
        row["call_ms"] = statistics.median(calls)
    row["plan"] = str(hyla.plan_extend(x["q_extend"], x["k_extend"], x["v_extend"], x["k_buffer"], x["v_buffer"], x["qo_indptr"], x["kv_indptr"],
                                       x["kv_indices"], sliding_window=window, max_extend=n))
    row["variant"] = row["plan"].split()[0]
    row["peers"] = entries
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="extend_peers.json")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--max-seconds", type=float, default=300)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    wheel = sglang_triton.find_wheel()
    triton_module = sglang_triton.load(wheel) if wheel else None
    if triton_module is None:
        print("no sglang wheel found: its Triton kernel is left out", file=sys.stderr)
    import triton

    began, rows = time.time(), []
    for name in args.cases:
        if time.time() - began > args.max_seconds:
            print(f"stopping before {name}: {args.max_seconds:.0f} s are over", file=sys.stderr)
            break
        row = measure(name, CASES[name], triton_module)
        rows.append(row)
        peers = "  ".join(f"{peer} {e['useful_tflops']:.0f}" for peer, e in row["peers"].items() if "useful_tflops" in e)
        print(f"{name:18s} hyla {row.get('useful_tflops', float('nan')):6.1f} TFLOP/s {row.get('graph_ms', float('nan')):.4f} ms "
              f"(rel {row['rel_l2']:.1e}) [{row['variant']}]  {peers}", flush=True)
    record = {"device": torch.cuda.get_device_name(), "commit": args.commit or git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain")),
              "date": time.strftime("%Y-%m-%d"),
              "versions": {"hyla": hyla.__version__, "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
                           "sglang": wheel.split("-")[1] if wheel else None}, "rows": rows}
    with open(args.out, "w") as file:
        json.dump(record, file, indent=1)
    return 0 if all(row["pass"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
