"""The Python package on the CPU backend: numpy (bf16 through ml_dtypes), torch and jax where installed, errors, plans, drop-ins, examples."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hyla

ROOT = Path(__file__).resolve().parents[2]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def kda_inputs(T=70, H=2, HV=2, D=128, B=1, seed=0, dtype=ml_dtypes.bfloat16):
    rng = np.random.default_rng(seed)
    heads = dict(q=H, k=H, v=HV, g=HV)
    x = {name: rng.standard_normal((B, T, n, D)).astype(dtype) for name, n in heads.items()}
    x["beta"] = rng.standard_normal((B, T, HV)).astype(dtype)
    layer = dict(A_log=rng.standard_normal(HV).astype(np.float32) * 0.3, dt_bias=rng.standard_normal((HV, D)).astype(np.float32))
    return x, layer


def kda_reference(x, layer, initial=None):
    """The recurrence in float64: bounded gate, norm, beta logits."""
    q, k, v, g = (np.asarray(x[n], np.float64) for n in "qkvg")
    beta = sigmoid(np.asarray(x["beta"], np.float64))
    q = q / np.sqrt((q**2).sum(-1, keepdims=True) + 1e-6)
    k = k / np.sqrt((k**2).sum(-1, keepdims=True) + 1e-6)
    decay = np.exp(-5 * sigmoid(np.exp(layer["A_log"].astype(np.float64))[:, None] * (g + layer["dt_bias"])))
    B, T, HV, D = v.shape
    group = HV // q.shape[2]
    S = np.zeros((B, HV, D, D)) if initial is None else np.asarray(initial, np.float64).copy()
    out = np.empty_like(v)
    for b in range(B):
        for h in range(HV):
            for t in range(T):
                kk, s = k[b, t, h // group], S[b, h]
                s *= decay[b, t, h][:, None]
                s += beta[b, t, h] * np.outer(kk, v[b, t, h] - kk @ s)
                out[b, t, h] = s.T @ q[b, t, h // group] * D**-0.5
    return out, S


def rel(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


OPTIONS = dict(gate="bounded", lower_bound=-5.0, beta_is_logits=True)


def test_kda_numpy_matches_float64():
    x, layer = kda_inputs(HV=4)
    result = hyla.kda_prefill(**x, **layer, **OPTIONS, output_final_state=True)
    out, state = kda_reference(x, layer)
    assert result.out.dtype == ml_dtypes.bfloat16
    assert rel(result.out, out) < 6e-3 and rel(result.final_state, state) < 5e-3


def test_kda_strided_slices_of_one_projection():
    x, layer = kda_inputs()
    packed = np.concatenate([x["q"], x["k"], x["v"], x["g"]], axis=2)
    sliced = {n: packed[:, :, 2 * i : 2 * i + 2] for i, n in enumerate("qkvg")}
    whole = hyla.kda_prefill(**x, **layer, **OPTIONS)
    parts = hyla.kda_prefill(**sliced, beta=x["beta"], **layer, **OPTIONS)
    assert np.array_equal(whole.out.view(np.uint16), parts.out.view(np.uint16))


def test_kda_pool_in_place_and_inputs_unchanged():
    x, layer = kda_inputs(T=20, B=1)
    pool = np.full((3, 2, 128, 128), np.nan, np.float32)
    pool[1] = 0.25
    before = {n: a.tobytes() for n, a in x.items()}
    result = hyla.kda_prefill(**x, **layer, **OPTIONS, initial_state=pool, final_state=pool, state_indices=np.array([1], np.int32))
    out, state = kda_reference(x, layer, np.full((1, 2, 128, 128), 0.25))
    assert rel(result.out, out) < 6e-3 and rel(pool[1:2], state) < 5e-3
    assert np.isnan(pool[0]).all() and np.isnan(pool[2]).all()
    assert {n: a.tobytes() for n, a in x.items()} == before


def test_kda_errors_name_the_argument():
    x, layer = kda_inputs()
    x["k"] = x["k"][:, :, :1]
    with pytest.raises(ValueError, match="k"):
        hyla.kda_prefill(**x, **layer, **OPTIONS)
    with pytest.raises(TypeError, match="arrays"):
        hyla.kda_prefill("q", x["k"], x["v"], x["g"], x["beta"])
    with pytest.raises(hyla.HylaError, match="lower_bound"):
        good, _ = kda_inputs()
        hyla.kda_prefill(**good, **layer, gate="bounded", lower_bound=-7.0)


def test_kda_unknown_variant_is_refused():
    x, layer = kda_inputs()
    with pytest.raises(hyla.HylaError, match="variant"):
        hyla.kda_prefill(**x, **layer, **OPTIONS, variant="no_such_variant")


def test_plan_says_why():
    x, layer = kda_inputs()
    plan = hyla.plan_kda(**x, **layer, **OPTIONS)
    assert plan.variant == "cpu" and "cpu" in str(plan) and plan.workspace_bytes >= 0
    assert any(c.variant == "cpu" and c.legal for c in plan.candidates)


def test_own_workspace():
    x, layer = kda_inputs()
    plan = hyla.plan_kda(**x, **layer, **OPTIONS)
    workspace = np.zeros(plan.workspace_bytes + 256, np.uint8)
    a = hyla.kda_prefill(**x, **layer, **OPTIONS, workspace=workspace)
    b = hyla.kda_prefill(**x, **layer, **OPTIONS)
    assert np.array_equal(a.out.view(np.uint16), b.out.view(np.uint16))
    if plan.workspace_bytes > 0:
        with pytest.raises(hyla.HylaError, match="workspace"):
            hyla.kda_prefill(**x, **layer, **OPTIONS, workspace=np.zeros(1, np.uint8))


def extend_inputs(new=(5, 33), prefix=(17, 0), Hq=4, Hkv=2, D=64, seed=0):
    rng = np.random.default_rng(seed)

    def randn(*shape):
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)

    n, total = sum(new), sum(prefix)
    return dict(q=randn(n, Hq, D), k=randn(n, Hkv, D), v=randn(n, Hkv, D), k_buffer=randn(64, Hkv, D), v_buffer=randn(64, Hkv, D),
                qo_indptr=np.cumsum([0, *new]).astype(np.int32), kv_indptr=np.cumsum([0, *prefix]).astype(np.int32),
                kv_indices=rng.permutation(64)[:total].astype(np.int64))


def extend_reference(x, window=-1):
    q, k, v, kb, vb = (np.asarray(x[n], np.float64) for n in ("q", "k", "v", "k_buffer", "v_buffer"))
    out = np.zeros((*q.shape[:2], v.shape[2]))
    group = q.shape[1] // k.shape[1]
    for i in range(len(x["qo_indptr"]) - 1):
        a, b = x["qo_indptr"][i : i + 2]
        slots = x["kv_indices"][x["kv_indptr"][i] : x["kv_indptr"][i + 1]]
        for h in range(q.shape[1]):
            keys, values = (np.concatenate([pool[slots, h // group], new[a:b, h // group]]) for pool, new in ((kb, k), (vb, v)))
            position = np.arange(len(slots), len(slots) + b - a)
            score = q[a:b, h] @ keys.T / np.sqrt(q.shape[2])
            hidden = np.arange(len(keys)) > position[:, None]
            if window >= 0:
                hidden |= np.arange(len(keys)) < position[:, None] - window
            score[hidden] = -np.inf
            weight = np.exp(score - score.max(1, keepdims=True))
            out[a:b, h] = weight @ values / weight.sum(1, keepdims=True)
    return out


@pytest.mark.parametrize("window", [-1, 4])
def test_extend_numpy_matches_float64(window):
    x = extend_inputs()
    out = hyla.extend_attention(**x, sliding_window=window)
    assert rel(out, extend_reference(x, window)) < 4e-3


def test_extend_sglang_signature():
    sglang = pytest.importorskip("hyla.sglang")
    x = extend_inputs()
    out = np.full(x["q"].shape, np.nan, ml_dtypes.bfloat16)
    sglang.extend_attention_fwd(x["q"], x["k"], x["v"], out, x["k_buffer"], x["v_buffer"], x["qo_indptr"], x["kv_indptr"], x["kv_indices"], None, True,
                                None, 33, 1.0, 1.0, sliding_window_size=4)
    assert rel(out, extend_reference(x, 4)) < 4e-3
    with pytest.raises(hyla.UnsupportedError, match="score_mod"):
        sglang.extend_attention_fwd(x["q"], x["k"], x["v"], out, x["k_buffer"], x["v_buffer"], x["qo_indptr"], x["kv_indptr"], x["kv_indices"], None,
                                    True, None, 33, 1.0, 1.0, score_mod=lambda s: s)


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    x, layer = kda_inputs(T=10)
    result = hyla.kda_prefill(**{n: jax.numpy.asarray(a) for n, a in x.items()}, **{n: jax.numpy.asarray(a) for n, a in layer.items()}, **OPTIONS)
    assert isinstance(result.out, jax.Array)
    assert rel(result.out, kda_reference(x, layer)[0]) < 6e-3


def to_torch(torch, array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def test_torch_fla_drop_in():
    torch = pytest.importorskip("torch")
    from hyla.fla import chunk_kda

    x, layer = kda_inputs(T=130)
    t = {n: to_torch(torch, a) for n, a in x.items()}
    initial = torch.randn(1, 2, 128, 128)
    with torch.no_grad():
        o, s, h = chunk_kda(**t, A_log=torch.from_numpy(layer["A_log"]), dt_bias=torch.from_numpy(layer["dt_bias"]).reshape(-1), initial_state=initial,
                            output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                            safe_gate=True, lower_bound=-5.0, return_intermediate_states=True)
    out, state = kda_reference(x, layer, initial.numpy())
    assert rel(o.float().numpy(), out) < 6e-3 and rel(s.numpy(), state) < 5e-3
    assert h.shape == (1, 3, 2, 128, 128) and h.dtype == torch.bfloat16  # states before tokens 0, 64 and 128
    assert torch.equal(h[0, 0], initial[0].bfloat16())
    head = {n: a[:, :128] for n, a in x.items()}
    assert rel(h[0, 2].float().numpy(), kda_reference(head, layer, initial.numpy())[1][0]) < 6e-3
    with pytest.raises(hyla.UnsupportedError, match="forward"):
        chunk_kda(t["q"].requires_grad_(), t["k"], t["v"], t["g"], t["beta"])


def test_torch_custom_ops_opcheck():
    torch = pytest.importorskip("torch")
    import hyla.torch_ops  # noqa: F401

    x, layer = kda_inputs(T=20)
    args = [to_torch(torch, x[n]) for n in ("q", "k", "v", "g", "beta")] + [torch.from_numpy(layer["A_log"]), torch.from_numpy(layer["dt_bias"])]
    torch.library.opcheck(torch.ops.hyla.kda_prefill.default, tuple(args))
    y = extend_inputs()
    torch.library.opcheck(torch.ops.hyla.extend_attention.default, tuple(to_torch(torch, y[n]) for n in y))
    compiled = torch.compile(lambda *a: torch.ops.hyla.kda_prefill(*a)[0] * 2, fullgraph=True, backend="eager")
    eager, _ = torch.ops.hyla.kda_prefill(*args)
    assert torch.equal(compiled(*args), eager * 2)


def test_info_and_import_without_torch():
    info = hyla.info()
    assert "cpu" in info["kda_variants"] and "cpu" in info["extend_variants"] and info["cpu_threads"] >= 1
    code = "import sys; sys.modules['torch'] = None; import hyla; print(hyla.info()['version'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == hyla.__version__


def test_command_line():
    run = subprocess.run([sys.executable, "-m", "hyla", "info"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "cpu" in run.stdout


@pytest.mark.parametrize("name", ["kda_prefix_caching", "gemma_512_prefill", "mla_prefill"])
def test_example(name, capsys):
    runpy.run_path(str(ROOT / "examples" / "python" / f"{name}.py"))
    assert "error" in capsys.readouterr().out or name == "kda_prefix_caching"


def test_installed_size():
    size = sum(os.path.getsize(p) for p in Path(hyla.__file__).parent.rglob("*") if p.is_file())
    assert size < 60e6
