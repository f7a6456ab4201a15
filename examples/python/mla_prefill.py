"""Absorbed multi-head latent attention (576/512, as in DeepSeek and Kimi K3): one latent KV head, V is a view of K's first 512 columns, no copy.
Runs on the CPU in seconds."""

import ml_dtypes
import numpy as np

import hyla

heads, latent, rope, prefix, new = 12, 512, 64, 300, 40
rng = np.random.default_rng(0)


def randn(*shape):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


q = randn(new, heads, latent + rope)
kv = randn(new, 1, latent + rope)         # the new tokens' latent and rope parts
pool = randn(1024, 1, latent + rope)      # the cache
slots = rng.permutation(1024)[:prefix]
scale = 1 / np.sqrt(192)                  # of the expanded head dimension

plan = hyla.plan_extend(q, kv, kv[..., :latent], pool, pool[..., :latent], np.array([0, new]), np.array([0, prefix]), slots, sm_scale=scale)
out = hyla.extend_attention(q, kv, kv[..., :latent], pool, pool[..., :latent], np.array([0, new]), np.array([0, prefix]), slots, sm_scale=scale)

row, head = 7, 11
keys = np.concatenate([pool[slots, 0], kv[: row + 1, 0]]).astype(np.float64)
score = keys @ q[row, head].astype(np.float64) * scale
weight = np.exp(score - score.max())
want = weight @ keys[:, :latent] / weight.sum()
error = np.linalg.norm(out[row, head].astype(np.float64) - want) / np.linalg.norm(want)
print(f"MLA {heads} heads, {new} new tokens on {prefix}: error {error:.1e}\nplan: {plan}")
assert error < 6e-3
