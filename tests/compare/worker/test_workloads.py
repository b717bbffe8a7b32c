"""What is trained on what: the same samples however they are cut, the same model at every call, errors in a sentence."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from ds_accum.compare.spec import Workload
from ds_accum.errors import UsageError

torch = pytest.importorskip("torch")
# DeepSpeed is not needed for any of this, but the names below are those of a package that trains.
from ds_accum.compare.worker.workloads import build, micro_batches  # noqa: E402

TEXT = Workload(layers=1, width=16, heads=2, vocabulary=32, sequence_length=32)


def samples(training: object, micro: int, world_size: int, *, step: int = 0) -> list[list[int]]:
    """Each sample of a step as numbers, from all ranks' micro-batches, in the order of the global batch."""
    ranks = [
        micro_batches(
            training, step=step, global_batch_size=16, micro_batch_size=micro, rank=rank, world_size=world_size
        )  # type: ignore[arg-type]
        for rank in range(world_size)
    ]
    rows = []
    for index in range(len(ranks[0])):
        for batches in ranks:
            rows += [
                row.tolist()
                for row in torch.cat([batches[index].inputs["input_ids"], batches[index].inputs["labels"]], 1)
            ]
    return rows


@pytest.mark.parametrize(("micro", "world_size"), [(16, 1), (8, 2), (2, 2), (1, 4)])
def test_every_cut_of_the_batch_has_the_same_samples(micro: int, world_size: int) -> None:
    training = build(TEXT)
    assert samples(training, micro, world_size) == samples(training, 4, 2)
    assert samples(training, micro, world_size, step=1) == samples(training, 4, 2, step=1)


def test_steps_have_other_samples() -> None:
    training = build(TEXT)
    assert samples(training, 4, 2) != samples(training, 4, 2, step=1)


def test_two_builds_are_the_same_and_another_seed_is_not() -> None:
    one, other = build(TEXT), build(TEXT)
    for first, second in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(first, second)
    different = build(Workload(layers=1, width=16, heads=2, vocabulary=32, sequence_length=32, seed=1))
    assert not torch.equal(next(iter(one.model.parameters())), next(iter(different.model.parameters())))
    assert samples(one, 4, 2) != samples(different, 4, 2)


def test_lengths_are_so_uneven_that_a_mean_of_means_is_another_gradient() -> None:
    training = build(Workload())
    batches = micro_batches(training, step=0, global_batch_size=64, micro_batch_size=4, rank=0, world_size=1)
    counts = [batch.num_tokens for batch in batches]
    assert min(counts) >= 4 * 2
    assert max(counts) > 5 * min(counts)

    def gradient(weights: list[float]) -> torch.Tensor:
        training.model.zero_grad()
        for weight, batch in zip(weights, batches, strict=True):
            (training.loss(training.model, batch.inputs) * weight).backward()
        return training.model.head.weight.grad.clone()  # type: ignore[union-attr,operator]

    right = gradient([count / sum(counts) for count in counts])
    means = gradient([1 / len(counts)] * len(counts))
    assert float((means - right).norm() / right.norm()) > 0.2


@torch.no_grad()
def test_the_count_is_that_of_the_labels_in_the_loss() -> None:
    training = build(TEXT)
    (batch,) = micro_batches(training, step=0, global_batch_size=4, micro_batch_size=4, rank=0, world_size=1)
    assert batch.num_tokens == int((batch.inputs["labels"] != -100).sum())
    # Inputs past the end of a sequence change nothing.
    padded = {**batch.inputs, "input_ids": batch.inputs["input_ids"].masked_fill(batch.inputs["labels"] == -100, 7)}
    assert float(training.loss(training.model, padded)) == pytest.approx(
        float(training.loss(training.model, batch.inputs))
    )


def test_first_parameters_fit_in_the_dtypes_that_are_compared() -> None:
    rounded = build(TEXT, (torch.bfloat16,))
    assert all(torch.equal(p, p.bfloat16().float()) for p in rounded.model.parameters())
    assert not all(torch.equal(p, p.bfloat16().float()) for p in build(TEXT).model.parameters())


def test_a_function_of_the_users_is_called_anew_for_every_model(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "def build():\n"
        "    model = torch.nn.Linear(3, 2)\n"
        "    dataset = [{'x': torch.full((3,), float(i)), 'y': torch.tensor(i % 2)} for i in range(5)]\n"
        "    return model, dataset, lambda model, batch: model(batch['x']).mean(), lambda batch: len(batch['y'])\n",
        "utf-8",
    )
    workload = Workload(kind="file", path=f"{file}:build")
    one, other = build(workload), build(workload)
    assert one.model is not other.model
    assert torch.equal(one.model.weight, other.model.weight)  # type: ignore[arg-type]
    # Five samples: the dataset starts again.
    batches = micro_batches(one, step=0, global_batch_size=8, micro_batch_size=4, rank=0, world_size=1)
    assert [batch.inputs["x"][:, 0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 0, 1, 2]]
    assert [batch.num_tokens for batch in batches] == [4, 4]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("nowhere.py:build", "there is no workload file nowhere.py"),
        ("nowhere.py", '"nowhere.py" is not "file.py:function"'),
        (f"{Path(__file__).with_name('seventeen_thousand.py')}:bild", "has no function bild"),
        (f"{Path(__file__).with_name('seventeen_thousand.py')}:build_something_else", "returned Linear, not (model"),
    ],
)
def test_a_workload_that_is_none_is_a_usage_error(written: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        build(Workload(kind="file", path=written))
    assert said in str(raised.value)


def test_a_width_that_the_heads_do_not_divide_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="width 10 is not a multiple of 4 heads"):
        build(Workload(width=10, heads=4))


def test_hugging_face_without_transformers_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match="needs transformers"):
        build(Workload(kind="huggingface", path=str(tmp_path)))


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.filterwarnings("default")
@torch.no_grad()
def test_a_hugging_face_model_is_built_from_its_config_and_counts_what_its_loss_does(tmp_path: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    config = {
        "model_type": "gpt2",
        "vocab_size": 64,
        "n_positions": 32,
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    for path in (tmp_path, tmp_path / "config.json"):
        training = build(Workload(kind="huggingface", path=str(path), sequence_length=32))
        (batch,) = micro_batches(training, step=0, global_batch_size=8, micro_batch_size=8, rank=0, world_size=1)
        logits = training.model(input_ids=batch.inputs["input_ids"]).logits[:, :-1].flatten(0, 1)
        labels = batch.inputs["labels"][:, 1:].flatten()
        summed = torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
        # No dropout, and the same number of tokens.
        assert float(training.loss(training.model, batch.inputs)) == pytest.approx(float(summed) / batch.num_tokens)
    with pytest.raises(UsageError, match="there is no"):
        build(Workload(kind="huggingface", path=str(tmp_path / "elsewhere")))
