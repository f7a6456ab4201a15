"""Prefill of a layer with head_dim 512 (as in Gemma 4's global layers): 96 new tokens over a cached prefix of 200 in a paged pool.
Runs on the CPU in seconds."""

import ml_dtypes
import numpy as np

import hyla

Hq, Hkv, D, prefix, new, page_size, pages = 8, 4, 512, 200, 96, 16, 20
rng = np.random.default_rng(0)


def randn(*shape):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


q, k, v = randn(new, Hq, D), randn(new, Hkv, D), randn(new, Hkv, D)
k_pool, v_pool = randn(pages, page_size, Hkv, D), randn(pages, page_size, Hkv, D)
page_table = rng.permutation(pages)[: -(-prefix // page_size)]
slots = (page_table[:, None] * page_size + np.arange(page_size)).reshape(-1)[:prefix]

lse = np.empty((new, Hq), np.float32)
out = hyla.extend_attention(q, k, v, k_pool, v_pool, np.array([0, new], np.int32), np.array([0, prefix], np.int32), slots, lse=lse)

# One row against a dense softmax in float64.
row, head = new - 1, 5
keys = np.concatenate([k_pool.reshape(-1, Hkv, D)[slots, head // 2], k[:, head // 2]]).astype(np.float64)
values = np.concatenate([v_pool.reshape(-1, Hkv, D)[slots, head // 2], v[:, head // 2]]).astype(np.float64)
score = keys @ q[row, head].astype(np.float64) / np.sqrt(D)
weight = np.exp(score - score.max())
want = weight @ values / weight.sum()
error = np.linalg.norm(out[row, head].astype(np.float64) - want) / np.linalg.norm(want)
print(f"head_dim 512, {new} new tokens on {prefix}: error {error:.1e}, lse {lse[row, head]:.5f} against {score.max() + np.log(weight.sum()):.5f}")
assert error < 6e-3 and abs(lse[row, head] - (score.max() + np.log(weight.sum()))) < 1e-4
