"""A KDA layer step with prefix caching: 130 tokens with checkpoints every 64, then a second request that shares the first 128 tokens resumes
from the checkpoint after token 128 instead of computing them again. Runs on the CPU in a second."""

import ml_dtypes
import numpy as np

import hyla

H, D = 4, 128
rng = np.random.default_rng(0)


def tokens(n):
    """q, k, v, raw gate and beta logits of n new tokens, as a layer's projections would give them."""
    qkvg = [rng.standard_normal((1, n, H, D)).astype(ml_dtypes.bfloat16) for _ in range(4)]
    return (*qkvg, rng.standard_normal((1, n, H)).astype(ml_dtypes.bfloat16))


layer = dict(A_log=np.zeros(H, np.float32), dt_bias=np.full((H, D), -2.0, np.float32), gate="bounded", lower_bound=-5.0, beta_is_logits=True)

prompt = tokens(130)
checkpoints = np.empty((2, H, D, D), np.float32)  # after 64 and after 128 tokens
first = hyla.kda_prefill(*prompt, **layer, output_final_state=True, checkpoints=checkpoints)

# The second request: the same first 128 tokens, then its own. Only the new ones are computed.
resumed = hyla.kda_prefill(*(x[:, 128:] for x in prompt), **layer, initial_state=checkpoints[1:2], output_final_state=True)


def difference(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


out_error = difference(resumed.out, first.out[:, 128:])
state_error = difference(resumed.final_state, first.final_state)
print(f"tokens 128..129 resumed from the checkpoint against one shot: output {out_error:.1e}, state {state_error:.1e}")
assert out_error < 6e-3 and state_error < 5e-3
