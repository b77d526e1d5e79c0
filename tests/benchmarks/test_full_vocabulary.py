"""The transformers side of the KL cross-check, on a model of two layers: is it the model that it claims to run?"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="needs the cpu extra"
)
ROOT = Path(__file__).parents[2]
IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


@pytest.fixture(scope="module")
def full_vocabulary() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import full_vocabulary
    finally:
        sys.path.pop(0)
    return full_vocabulary


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("model") / "anchor"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def theirs(folder: Path) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([IDS])).logits[0], dim=-1)


def test_in_float32_the_plain_checkpoint_is_transformers_own_model(
    full_vocabulary: Any, anchor: Path
) -> None:
    import torch

    ours = full_vocabulary.load(anchor, torch.float32)(IDS)
    assert torch.allclose(ours, theirs(anchor), atol=1e-4)


def test_in_bfloat16_it_is_the_same_but_for_rounding(full_vocabulary: Any, anchor: Path) -> None:
    import torch

    ours = full_vocabulary.load(anchor, torch.bfloat16)(IDS)
    assert 0 < full_vocabulary.divergence(theirs(anchor), ours).mean() < 0.01


@pytest.mark.parametrize(("scheme", "most"), [("w8a8", 0.02), ("w4a16", 2.0)])
def test_a_quantized_checkpoint_is_near_and_int4_further(
    full_vocabulary: Any, anchor: Path, tmp_path: Path, scheme: Any, most: float
) -> None:
    import torch

    from lowbit_ray.demo.quantize import quantize

    candidate = quantize(anchor, tmp_path / scheme, scheme)
    ours = full_vocabulary.load(candidate, torch.float32)(IDS)
    assert 1e-6 < full_vocabulary.divergence(theirs(anchor), ours).mean() < most


def test_the_divergence_is_over_all_ids(full_vocabulary: Any) -> None:
    import torch

    p, q = (torch.log(torch.tensor([values])) for values in ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5]))
    expected = 0.5 * 0.6931471805599453 - 0.25 * 0.6931471805599453
    assert full_vocabulary.divergence(p, q) == pytest.approx([expected])


def test_the_kept_results_hold_the_bound_and_the_goal() -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "kl.json").read_text())
    for result in kept.values():
        # a smaller K never reads more, and a list for a smaller K is the beginning of that for a larger one
        bounds = [result["by_top_k"][top_k]["against_all_ids"]["probe"] for top_k in ("20", "100", "1000")]
        assert bounds == sorted(bounds)
        assert result["asked_with_smallest_k_against_cut"] == 0
    exact = kept["smollm2-w8a8 float32"]["by_top_k"]
    for each in exact.values():
        assert each["served_from_transformers"]["anchor"] < 1e-9
        assert each["against_same_k"]["ratio"] == pytest.approx(1, abs=0.05)
    assert exact["1000"]["against_all_ids"]["ratio"] == pytest.approx(1, abs=0.05)
